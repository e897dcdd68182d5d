"""Dependencies of all routers: the process's services and one unit of work per request."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import contextmanager_in_threadpool
from sqlalchemy.orm import Session

from market.api.services import Services


async def services(request: Request) -> Services:
    """The services of the application that serves this request. (A coroutine, because it needs no thread.)"""
    found: Services = request.app.state.services
    return found


ServicesDep = Annotated[Services, Depends(services)]


async def unit_of_work(services: ServicesDep) -> AsyncIterator[Session]:
    """One transaction around the endpoint, committed before the answer leaves."""
    async with services.database.turns, contextmanager_in_threadpool(services.database.transaction()) as session:
        yield session


async def reader(services: ServicesDep) -> AsyncIterator[Session]:
    """A session that only reads. To open and to close it is no input or output, so it takes no thread of its own."""
    async with services.database.turns:
        with services.database.reading() as session:
            yield session


# Function scope: with the default scope a failed commit would come after a 200 has been sent.
Uow = Annotated[Session, Depends(unit_of_work, scope="function")]
Reads = Annotated[Session, Depends(reader, scope="function")]
