"""Overview for staff: figures with their lists, and alarms."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console.chain_facts import ChainFactsReader
from market.console.page import Audience, Page
from market.console.reads import overview
from market.console.visits import CurrentVisit
from market.platform.db.base import utc_now

router = APIRouter()
PAGE = Page("/overview", "Overview", "Operate", Audience.STAFF, router)


@router.get("/overview")
def show_overview(visit: CurrentVisit) -> HTMLResponse:
    """Return the page. Facts of the chain are those of an earlier read."""
    now, reader = utc_now(), visit.services.part(ChainFactsReader)
    with visit.services.database.reading() as session:
        figures = overview.read_figures(session, now)
        alarms = overview.read_alarms(session, visit.services, reader.latest, now)
    visit.later.add_task(reader.refresh, visit.services)
    return visit.render(
        "operate/overview.html",
        figures=figures,
        alarms=alarms,
        facts=reader.latest,
        running=overview.count_running(figures.jobs),
        tiers={tier.id: tier.name for tier in visit.services.network.tiers},
    )
