"""Guardian's view: payouts under their countdown, timelock, roles and events of governance."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.visits import CurrentVisit
from market.governance import service as governance
from market.platform.db.base import utc_now

router = APIRouter()
PAGE = Page("/guardian", "Guardian", "Operate", Audience.STAFF, router)
TONES = {"waiting": "busy", "due": "warn", "executed": "good", "cancelled": "neutral"}
_SHOWN = 50


@router.get("/guardian")
def show_guardian(visit: CurrentVisit) -> HTMLResponse:
    """Return the page; it asks the database only."""
    now = utc_now()
    with visit.services.database.reading() as session:
        contracts = governance.contracts_of(session, visit.deployment, visit.services.network)
        payouts = governance.payouts_under_challenge(session, now)
        operations = governance.operations(session, contracts, now, pending=False, limit=_SHOWN)
        events = governance.events(session, contracts, limit=_SHOWN)
        holders = governance.role_holders(session)
    values = {"payouts": payouts, "operations": operations, "events": events, "holders": holders}
    return visit.render("guardian.html", 200, now=now, tones=TONES, delay=contracts.delay_seconds, **values)
