"""Dependencies of all routers: the process's services and one unit of work per request."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import contextmanager_in_threadpool
from sqlalchemy.orm import Session

from market.platform.http.services import Services


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
