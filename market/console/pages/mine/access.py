"""API keys with caps, webhooks and organisations of the signed-in wallet."""

from typing import Annotated, Any, get_args

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse

from market.accounts import service as accounts
from market.accounts.organisations import service as organisations
from market.accounts.organisations.router import RoleName
from market.accounts.organisations.service import Role
from market.accounts.spending import Caps
from market.console.amounts import parse_cap
from market.console.page import Audience, Page
from market.console.reads import mine as reads
from market.console.visits import CurrentVisit, Visit
from market.platform.http.errors import InvalidRequest
from market.platform.http.types import AddressString, RowId
from market.webhooks import service as webhooks
from market.webhooks.router import DEFAULT_KINDS, EventKind

router = APIRouter()
PAGE = Page("/my/access", "Keys and webhooks", "You", Audience.SIGNED_IN, router)
SCOPES = tuple(f"{group}:{access}" for group in accounts.SCOPE_GROUPS for access in ("read", "write"))
KINDS: tuple[str, ...] = get_args(EventKind)
Name = Annotated[str, Form(min_length=1, max_length=64)]
Cap = Annotated[str, Form(max_length=40)]
RowIdField = Annotated[RowId, Form()]


@router.get("/my/access")
def show_access(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    return _page(visit)


@router.post("/my/access/keys")
def create_key(
    visit: CurrentVisit,
    name: Name,
    days: Annotated[int, Form(ge=1, le=365)] = 90,
    scopes: Annotated[list[str], Form(max_length=len(SCOPES))] = [],  # noqa: B006
    per_job: Cap = "",
    per_day: Cap = "",
    total: Cap = "",
) -> HTMLResponse:
    """Create an API key and show it once."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InvalidRequest(f"scopes are {scopes!r:.80}", field="scopes", remedy="Choose at least one of the scopes.")
    caps = Caps(parse_cap(per_job, "per_job"), parse_cap(per_day, "per_day"), parse_cap(total, "total"))
    with visit.services.database.transaction() as session:
        issued = accounts.create_key(
            session, visit.wallet.address, name, days, sorted(set(scopes)), None if caps == Caps() else caps
        )
    return _page(visit, new_key=issued.secret)


@router.post("/my/access/keys/revoke")
def revoke_key(visit: CurrentVisit, key_id: RowIdField) -> RedirectResponse:
    """Revoke an API key at once."""
    with visit.services.database.transaction() as session:
        accounts.revoke_key(session, visit.wallet.address, key_id)
    return visit.back_to("/my/access")


@router.post("/my/access/webhooks")
def create_webhook(
    visit: CurrentVisit,
    url: Annotated[str, Form(min_length=1, max_length=2048)],
    kinds: Annotated[list[str], Form(max_length=len(KINDS))] = [],  # noqa: B006
) -> HTMLResponse:
    """Create a webhook and show its secret once."""
    if not kinds or not set(kinds) <= set(KINDS):
        raise InvalidRequest(f"events are {kinds!r:.80}", field="kinds", remedy="Choose at least one of the events.")
    settings = visit.services.settings
    private, limit = settings.webhooks_to_private_addresses, settings.webhooks_per_account
    with visit.services.database.transaction() as session:
        row = webhooks.create(session, visit.wallet.address, url, kinds, private=private, limit=limit)
    return _page(visit, new_secret=row.secret)


@router.post("/my/access/webhooks/delete")
def delete_webhook(visit: CurrentVisit, webhook_id: RowIdField) -> RedirectResponse:
    """Delete a webhook. Its pending deliveries are never sent."""
    with visit.services.database.transaction() as session:
        webhooks.delete(webhooks.get(session, visit.wallet.address, webhook_id))
    return visit.back_to("/my/access")


@router.post("/my/access/organisations")
def create_organisation(visit: CurrentVisit, name: Name, per_day: Cap = "", total: Cap = "") -> RedirectResponse:
    """Create an organisation with the caller as its owner."""
    caps = Caps(None, parse_cap(per_day, "per_day"), parse_cap(total, "total"))
    with visit.services.database.transaction() as session:
        organisations.create(session, visit.wallet.address, name, caps)
    return visit.back_to("/my/access")


@router.post("/my/access/organisations/change")
def change_organisation(
    visit: CurrentVisit, organisation: RowIdField, name: Name, per_job: Cap = "", per_day: Cap = "", total: Cap = ""
) -> RedirectResponse:
    """Change an organisation's name and its caps, as its admin."""
    caps = Caps(parse_cap(per_job, "per_job"), parse_cap(per_day, "per_day"), parse_cap(total, "total"))
    with visit.services.database.transaction() as session:
        organisations.change(session, organisation, visit.wallet.address, name, caps)
    return visit.back_to("/my/access")


@router.post("/my/access/organisations/set-member")
def set_member(
    visit: CurrentVisit,
    organisation: RowIdField,
    address: Annotated[AddressString, Form()],
    role: Annotated[RoleName, Form()],
    per_job: Cap = "",
    per_day: Cap = "",
    total: Cap = "",
) -> RedirectResponse:
    """Add a member, or change its role and caps, as an admin."""
    caps = Caps(parse_cap(per_job, "per_job"), parse_cap(per_day, "per_day"), parse_cap(total, "total"))
    with visit.services.database.transaction() as session:
        actor = visit.wallet.address
        organisations.set_member(session, organisation, actor, address, Role[role.upper()], caps)
    return visit.back_to("/my/access")


@router.post("/my/access/organisations/remove-member")
def remove_member(
    visit: CurrentVisit, organisation: RowIdField, address: Annotated[AddressString, Form()]
) -> RedirectResponse:
    """Remove a member, or leave; the organisation keeps the member's jobs."""
    with visit.services.database.transaction() as session:
        organisations.remove_member(session, organisation, visit.wallet.address, address)
    return visit.back_to("/my/access")


def _page(visit: Visit, **values: Any) -> HTMLResponse:
    address = visit.wallet.address
    with visit.services.database.reading() as session:
        keys = reads.keys(session, address)
        endpoints = webhooks.of_owner(session, address)
        memberships = reads.memberships(session, address)
    given = {"new_key": None, "new_secret": None} | values
    return visit.render(
        "mine/access.html",
        keys=keys,
        endpoints=endpoints,
        memberships=memberships,
        scopes=SCOPES,
        kinds=KINDS,
        roles=get_args(RoleName),
        chosen=DEFAULT_KINDS,
        **given,
    )
