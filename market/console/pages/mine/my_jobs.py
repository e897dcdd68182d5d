"""A user's own jobs, and their cost by day."""

from datetime import UTC, datetime, time

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console import charts
from market.console.page import Audience, Page
from market.console.pages.jobs import job_table
from market.console.reads import mine as reads
from market.console.visits import CurrentVisit
from market.platform.db.base import utc_now

router = APIRouter()
PAGE = Page("/my/jobs", "My jobs", "You", Audience.SIGNED_IN, router)


@router.get("/my/jobs")
def list_my_jobs(visit: CurrentVisit) -> HTMLResponse:
    """Return the page."""
    payer = visit.wallet.address
    with visit.services.database.reading() as session:
        counts = reads.jobs_by_status(session, payer)
        days = reads.spend_by_day(session, payer, utc_now())
    costs = [(datetime.combine(day.day, time(), UTC), [charts.decimal_zen(day.cost_wei)]) for day in days]
    return visit.render(
        "mine/my_jobs.html",
        counts=counts,
        cost=charts.time_series(costs, ("cost",)),
        cost_wei=sum(day.cost_wei for day in days),
        settled=sum(day.jobs for day in days),
        days=reads.SPEND_DAYS,
        **job_table(visit, payer),
    )
