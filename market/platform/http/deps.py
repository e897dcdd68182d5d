"""Dependencies of all routers: services, one unit of work, known query parameters."""

from collections.abc import AsyncIterator
from inspect import isclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import contextmanager_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from sqlalchemy.orm import Session

from market.platform.http.services import Services
from market.platform.http.types import unknown_key


def services_of(request: Request) -> Services:
    """Return the application's services; cheaper than another dependency."""
    found: Services = request.app.state.services
    return found


async def _services(request: Request) -> Services:  # a coroutine, because it needs no thread
    return services_of(request)


ServicesDep = Annotated[Services, Depends(_services)]


async def unit_of_work(request: Request) -> AsyncIterator[Session]:
    """Open one transaction around the endpoint; it commits before the response is sent."""
    database = services_of(request).database
    async with database.turns, contextmanager_in_threadpool(database.transaction()) as session:
        yield session


async def reader(request: Request) -> AsyncIterator[Session]:
    """Open a session that only reads. Opening and closing it does no I/O, so it needs no thread."""
    database = services_of(request).database
    async with database.turns:
        with database.reading() as session:
            yield session


# Function scope: with the default scope a commit could fail after the response was sent.
Uow = Annotated[Session, Depends(unit_of_work, scope="function")]
Reads = Annotated[Session, Depends(reader, scope="function")]


async def only_known_parameters(request: Request) -> None:
    """Refuse unknown query parameters under ``/v1``: an ignored typo changes the meaning.

    Raises:
        RequestValidationError: names the parameter and the nearest one of the route.
    """
    if not request.scope["query_string"] or not request.scope["path"].startswith("/v1/"):
        return
    known = _parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            error = unknown_key(name, known)
            found = {"type": error.type, "loc": ("query",), "msg": error.message(), "ctx": error.context}
            raise RequestValidationError([found])


def _parameters(dependant: Dependant) -> list[str]:
    names = []
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isclass(model) and issubclass(model, BaseModel):  # one parameter for each of its fields
            names += [found.alias or name for name, found in model.model_fields.items()]
        else:
            names.append(field.alias)
    return names + [name for inner in dependant.dependencies for name in _parameters(inner)]
