"""Organisations: members with roles, and spending limits for all of their jobs.

Each role includes the ones before:

- A viewer reads the organisation's jobs.
- A member submits jobs in its name and manages its own.
- An admin manages members, caps and all jobs.
- An owner appoints and removes admins and owners.
"""

from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from market.accounts import service as accounts
from market.accounts import spending
from market.accounts.errors import LastOwner, MemberNotFound, NotPermitted, OrganisationNotFound
from market.accounts.organisations.models import Member, Organisation
from market.accounts.spending import Caps
from market.platform.events.service import record


class Role(IntEnum):
    """Roles by rank; each includes the rights of the lower ones."""

    VIEWER = 1
    MEMBER = 2
    ADMIN = 3
    OWNER = 4


def create(session: Session, founder: str, name: str, caps: Caps) -> Organisation:
    """Create an organisation with ``founder`` as its owner and only member."""
    row = Organisation(name=name, limit_id=spending.create_limit(session, caps))
    session.add(row)
    session.flush()
    unlimited = spending.create_limit(session, Caps())
    session.add(Member(organisation_id=row.id, address=founder, role=_text(Role.OWNER), limit_id=unlimited))
    _record(session, row.id, founder, "created", {"name": name})
    session.flush()
    return row


def of_member(session: Session, address: str) -> Sequence[Organisation]:
    """Return an account's organisations, oldest first."""
    query = select(Organisation).join(Member, Member.organisation_id == Organisation.id)
    return session.scalars(query.where(Member.address == address).order_by(Organisation.id)).all()


def require(session: Session, organisation_id: int, address: str, at_least: Role) -> Organisation:
    """Return an organisation in which the account has at least this role.

    Raises:
        OrganisationNotFound: the account is not a member, or the organisation does not exist.
        NotPermitted: its role is lower.
    """
    role = role_in(session, organisation_id, address)
    if role is None:
        raise OrganisationNotFound(f"{address} is not a member of organisation {organisation_id}", field="organisation")
    if role < at_least:
        raise NotPermitted(f"your role is {_text(role)}; expected {_text(at_least)} or above", field="organisation")
    return session.get_one(Organisation, organisation_id)


def role_in(session: Session, organisation_id: int | None, address: str) -> Role | None:
    """Return the account's role in an organisation; None if it is not a member."""
    row = None if organisation_id is None else session.get(Member, (organisation_id, address))
    return None if row is None else _role(row)


def limits_for(session: Session, organisation_id: int, address: str) -> list[tuple[int, str]]:
    """Return (limit id, holder) of the limits of a member's job for the organisation.

    Raises:
        OrganisationNotFound, NotPermitted: the account may not submit in its name.
    """
    row = require(session, organisation_id, address, Role.MEMBER)
    member = session.get_one(Member, (organisation_id, address))
    return [(row.limit_id, f"organisation {row.id}"), (member.limit_id, f"member {address}")]


def change(session: Session, organisation_id: int, actor: str, name: str | None, caps: Caps | None) -> Organisation:
    """Rename an organisation, change its caps, or both. Raises as :func:`require`, for an admin."""
    row = _lock(session, organisation_id, actor, Role.ADMIN)
    if name is not None:
        row.name = name
    if caps is not None:
        spending.set_caps(session, row.limit_id, caps)
    _record(session, row.id, actor, "changed", {"name": name, "caps": _caps_data(caps)})
    return row


def members(session: Session, organisation_id: int) -> Sequence[Member]:
    """Return all members, oldest first."""
    query = select(Member).where(Member.organisation_id == organisation_id)
    return session.scalars(query.order_by(Member.created_at, Member.address)).all()


def set_member(session: Session, organisation_id: int, actor: str, address: str, role: Role, caps: Caps) -> Member:
    """Add a member, or change its role and caps.

    Raises:
        OrganisationNotFound, NotPermitted: the actor is not an admin, or not an owner if the change needs one.
        AccountNotFound: that wallet never signed in.
        LastOwner: the organisation would have no owner.
    """
    _lock(session, organisation_id, actor, Role.ADMIN)
    accounts.require_account(session, address)
    row = session.get(Member, (organisation_id, address))
    if max(role, Role.VIEWER if row is None else _role(row)) >= Role.ADMIN:
        require(session, organisation_id, actor, Role.OWNER)
    if row is None:
        row = Member(organisation_id=organisation_id, address=address, limit_id=spending.create_limit(session, caps))
        session.add(row)
    else:
        spending.set_caps(session, row.limit_id, caps)
    row.role = _text(role)
    session.flush()
    _require_owner(session, organisation_id)
    data: dict[str, object] = {"address": address, "role": row.role, "caps": _caps_data(caps)}
    _record(session, organisation_id, actor, "member_set", data)
    return row


def remove_member(session: Session, organisation_id: int, actor: str, address: str) -> None:
    """Remove a member, or leave. The organisation keeps the member's jobs.

    Raises:
        OrganisationNotFound, NotPermitted, MemberNotFound, LastOwner.
    """
    _lock(session, organisation_id, actor, Role.VIEWER if actor == address else Role.ADMIN)
    row = session.get(Member, (organisation_id, address))
    if row is None:
        raise MemberNotFound(f"{address} is not in organisation {organisation_id}", field="address")
    if actor != address and _role(row) >= Role.ADMIN:
        require(session, organisation_id, actor, Role.OWNER)
    session.delete(row)
    session.flush()
    _require_owner(session, organisation_id)
    _record(session, organisation_id, actor, "member_removed", {"address": address})


def _lock(session: Session, organisation_id: int, actor: str, at_least: Role) -> Organisation:
    """Lock the organisation, because concurrent changes could leave it without an owner."""
    session.get(Organisation, organisation_id, with_for_update={"key_share": True})
    return require(session, organisation_id, actor, at_least)


def _require_owner(session: Session, organisation_id: int) -> None:
    if all(_role(member) < Role.OWNER for member in members(session, organisation_id)):
        raise LastOwner("the organisation would have no owner", field="role")


def _role(row: Member) -> Role:
    return Role[row.role.upper()]


def _text(role: Role) -> str:
    return role.name.lower()


def _caps_data(caps: Caps | None) -> dict[str, str | None] | None:
    if caps is None:
        return None
    return {name: None if amount is None else str(amount) for name, amount in asdict(caps).items()}


def _record(session: Session, organisation_id: int, actor: str, event: str, data: dict[str, object]) -> None:
    record(session, ("organisation", str(organisation_id)), event, actor=actor, data=data)
