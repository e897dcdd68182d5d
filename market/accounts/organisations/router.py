"""Routes of organisations."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from market.accounts import spending
from market.accounts.deps import CurrentAccount
from market.accounts.errors import AccountNotFound, LastOwner, MemberNotFound, NotPermitted, OrganisationNotFound
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.accounts.organisations import service
from market.accounts.organisations.models import Member, Organisation
from market.accounts.organisations.service import Role
from market.accounts.schemas import SpendingCaps, SpendingView
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, Uow
from market.platform.http.refusals import refusals
from market.platform.http.types import AddressString, RequestModel, RowId

router = APIRouter(prefix="/v1/organisations", tags=["organisations"], route_class=IdempotentRoute)
OrganisationId = Annotated[RowId, Path(description="The organisation's id.")]
MemberAddress = Annotated[AddressString, Path(description="A wallet that has signed in at least once.")]
RoleName = Literal["viewer", "member", "admin", "owner"]
Name = Annotated[str, Field(min_length=1, max_length=64, examples=["Zoo Labs"])]


class OrganisationRequest(RequestModel):
    name: Name
    spending: Annotated[SpendingCaps, Field(description="Caps on the jobs of all members together.")] = SpendingCaps()


class OrganisationPatch(RequestModel):
    """Missing fields stay unchanged; given caps replace all caps."""

    name: Name | None = None
    spending: SpendingCaps | None = None


class MemberRequest(RequestModel):
    role: RoleName = "member"
    spending: Annotated[SpendingCaps, Field(description="Caps on this member's jobs for the organisation.")] = (
        SpendingCaps()
    )


class MemberView(BaseModel):
    address: str
    role: RoleName
    spending: SpendingView


class OrganisationView(BaseModel):
    id: int
    name: str
    spending: SpendingView
    members: list[MemberView]


@router.post("", status_code=201, dependencies=[IDEMPOTENT_ROUTE])
def create_organisation(body: OrganisationRequest, account: CurrentAccount, session: Uow) -> OrganisationView:
    """Create an organisation with you as owner. Its members' wallets pay, within its caps."""
    return _view(session, service.create(session, account.address, body.name, body.spending.caps()))


@router.get("")
def list_organisations(account: CurrentAccount, session: Reads) -> list[OrganisationView]:
    """Return your organisations, oldest first."""
    return [_view(session, row) for row in service.of_member(session, account.address)]


@router.get("/{organisation_id}", responses=refusals(OrganisationNotFound))
def get_organisation(organisation_id: OrganisationId, account: CurrentAccount, session: Reads) -> OrganisationView:
    """Return one organisation with its caps, spending and members."""
    return _view(session, service.require(session, organisation_id, account.address, Role.VIEWER))


@router.patch("/{organisation_id}", responses=refusals(OrganisationNotFound, NotPermitted))
def change_organisation(
    organisation_id: OrganisationId, body: OrganisationPatch, account: CurrentAccount, session: Uow
) -> OrganisationView:
    """Change an organisation's name or caps, as its admin. Submitted jobs are not affected."""
    caps = None if body.spending is None else body.spending.caps()
    return _view(session, service.change(session, organisation_id, account.address, body.name, caps))


@router.put(
    "/{organisation_id}/members/{address}",
    responses=refusals(OrganisationNotFound, NotPermitted, AccountNotFound, LastOwner),
)
def set_member(
    organisation_id: OrganisationId, address: MemberAddress, body: MemberRequest, account: CurrentAccount, session: Uow
) -> MemberView:
    """Add a member or change its role and caps, as an admin; owners change admins and owners."""
    role = Role[body.role.upper()]
    row = service.set_member(session, organisation_id, account.address, address, role, body.spending.caps())
    return _member_view(session, row)


@router.delete(
    "/{organisation_id}/members/{address}",
    status_code=204,
    responses=refusals(OrganisationNotFound, NotPermitted, MemberNotFound, LastOwner),
)
def remove_member(
    organisation_id: OrganisationId, address: MemberAddress, account: CurrentAccount, session: Uow
) -> None:
    """Remove a member, or leave. The organisation keeps the member's jobs."""
    service.remove_member(session, organisation_id, account.address, address)


def _view(session: Session, row: Organisation) -> OrganisationView:
    return from_row(
        OrganisationView,
        row,
        spending=from_row(SpendingView, spending.usage(session, row.limit_id)),
        members=[_member_view(session, member) for member in service.members(session, row.id)],
    )


def _member_view(session: Session, row: Member) -> MemberView:
    return from_row(MemberView, row, spending=from_row(SpendingView, spending.usage(session, row.limit_id)))
