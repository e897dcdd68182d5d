"""Dependencies of all routers: the process's services and one unit of work per request."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from market.api.services import Services


def services(request: Request) -> Services:
    """The services of the application that serves this request."""
    found: Services = request.app.state.services
    return found


ServicesDep = Annotated[Services, Depends(services)]


def unit_of_work(services: ServicesDep) -> Iterator[Session]:
    """One transaction around the endpoint, committed before the answer leaves."""
    with services.database.transaction() as session:
        yield session


# Function scope: with the default scope a failed commit would come after a 200 has been sent.
Uow = Annotated[Session, Depends(unit_of_work, scope="function")]
