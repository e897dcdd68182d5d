"""The guardian's page: payouts under challenge, pauses of intake, and alarms of governance."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse

from market.console.errors import RoleMissing
from market.console.page import Audience, Page
from market.console.reads import governance as reads
from market.console.visits import CurrentVisit
from market.governance import service
from market.platform.db.base import utc_now
from market.platform.http.types import RowId

router = APIRouter()
PAGE = Page("/guardian", "Guardian", "Operate", Audience.STAFF, router)
ACKNOWLEDGERS = frozenset({"admin", "guardian", "support"})


@router.get("/guardian")
def show_guardian(visit: CurrentVisit) -> HTMLResponse:
    """Return the page; it asks the database only."""
    now = utc_now()
    with visit.services.database.reading() as session:
        contracts = service.contracts_of(session, visit.deployment, visit.services.network)
        alarms = service.alarms(session, contracts)
        payouts = service.payouts_under_challenge(session, now)
        intakes = reads.intakes(session, now)
    payouts.sort(key=lambda one: (one.vetoed_tx is not None, one.agrees, one.claimable_at))
    may_end = not ACKNOWLEDGERS.isdisjoint(visit.wallet.roles)
    return visit.render("governance/guardian.html", alarms=alarms, payouts=payouts, intakes=intakes, may_end=may_end)


@router.post("/guardian/acknowledge")
def acknowledge(visit: CurrentVisit, event_id: Annotated[RowId, Form()]) -> RedirectResponse:
    """End an alarm. The audit log names the visitor."""
    if ACKNOWLEDGERS.isdisjoint(visit.wallet.roles):
        raise RoleMissing(f"it needs one of {', '.join(sorted(ACKNOWLEDGERS))}")
    with visit.services.database.transaction() as session:
        service.acknowledge(session, event_id, visit.wallet.address)
    return visit.back_to("/guardian")
