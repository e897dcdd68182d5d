"""Dependencies of all routers: the process's services and one unit of work per request."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import contextmanager_in_threadpool
from sqlalchemy.orm import Session

from market.platform.http.services import Services


def services_of(request: Request) -> Services:
    """The services of the application that serves this request; for dependencies, as each of theirs costs anew."""
    found: Services = request.app.state.services
    return found


async def _services(request: Request) -> Services:  # a coroutine, because it needs no thread
    return services_of(request)


ServicesDep = Annotated[Services, Depends(_services)]


async def unit_of_work(request: Request) -> AsyncIterator[Session]:
    """One transaction around the endpoint, committed before the answer leaves."""
    database = services_of(request).database
    async with database.turns, contextmanager_in_threadpool(database.transaction()) as session:
        yield session


async def reader(request: Request) -> AsyncIterator[Session]:
    """A session that only reads. To open and to close it is no input or output, so it takes no thread of its own."""
    database = services_of(request).database
    async with database.turns:
        with database.reading() as session:
            yield session


# Function scope: with the default scope a failed commit would come after a 200 has been sent.
Uow = Annotated[Session, Depends(unit_of_work, scope="function")]


Reads = Annotated[Session, Depends(reader, scope="function")]
