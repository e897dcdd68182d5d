"""Public page of governance: timelock operations, parameters, holders of roles, events."""

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.reads.governance import ANY_ACCOUNT
from market.console.visits import CurrentVisit
from market.governance import service
from market.governance.parameters import parameters
from market.governance.schemas import ParameterValue, RoleHolder
from market.platform.db.base import utc_now
from zoo_protocol.acts.roles import DEFAULT_ADMIN_ROLE
from zoo_protocol.acts.table import ACTS

router = APIRouter()
PAGE = Page("/governance", "Governance", "Network", Audience.PUBLIC, router)
_SHOWN = 50
_SELECTED = {"staking.set-penalty": ("offence", "Penalty for "), "staking.set-minimum": ("tier", "Minimum stake ")}
"""Field of an act that a parameter's label names, and the words before it."""


@router.get("/governance")
def show_governance(visit: CurrentVisit) -> HTMLResponse:
    """Return the page; it asks the database only."""
    now, network = utc_now(), visit.services.network
    visit.names[ANY_ACCOUNT] = "any account"
    with visit.services.database.reading() as session:
        contracts = service.contracts_of(session, visit.deployment, network)
        values: dict[str, Any] = {
            "pending": service.operations(session, contracts, now, pending=True, limit=_SHOWN),
            "recent": service.operations(session, contracts, now, pending=False, limit=_SHOWN),
            "parameters": parameters(session, contracts, network, now),
            "holders": service.role_holders(session),
            "events": service.events(session, contracts, limit=_SHOWN),
            "delay_seconds": contracts.delay_seconds,
        }
    values["recent"] = [one for one in values["recent"] if one.ended_at is not None]
    return visit.render(
        "governance/governance.html", 200, change_link=_change_link, revoke_link=_revoke_link, shown=_SHOWN, **values
    )


def _change_link(parameter: ParameterValue) -> str:
    name, prefix = _SELECTED.get(parameter.act, ("", ""))
    query = f"?{urlencode({name: parameter.label.removeprefix(prefix)})}" if name else ""
    return f"/console/acts/{parameter.act}{query}"


def _revoke_link(holder: RoleHolder) -> str | None:
    key = f"{holder.contract.lower()}.revoke-role"
    if key not in ACTS or holder.role == DEFAULT_ADMIN_ROLE:
        return None
    return f"/console/acts/{key}?{urlencode({'role': holder.role, 'account': holder.account})}"
