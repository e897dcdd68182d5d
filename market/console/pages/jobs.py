"""All jobs, for staff: list with search."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from market.console.page import Audience, Page
from market.console.reads import jobs as reads
from market.console.tables import Column, Filter, Table
from market.console.visits import CurrentVisit, Visit
from market.domain.lifecycle import JobStatus
from market.jobs.models import Job

router = APIRouter()
PAGE = Page("/jobs", "Jobs", "Operate", Audience.STAFF, router)
_COLUMNS = (
    Column("name", "Name"),
    Column("id", "Id"),
    Column("payer", "Payer"),
    Column("status", "Status"),
    Column("tier", "Tier"),
    Column("nodes", "Nodes", kind="number"),
    Column("round", "Round", kind="number"),
    Column("budget", "Budget, ZEN", Job.budget_wei, "number"),
    Column("cost", "Cost, ZEN", kind="number"),
    Column("submitted", "Submitted", Job.created_at),
)


@router.get("/jobs")
def list_jobs(visit: CurrentVisit) -> HTMLResponse:
    """Return the list."""
    return visit.render("jobs/jobs.html", **job_table(visit, None))


def job_table(visit: Visit, payer: str | None) -> dict[str, Any]:
    """Return the table of all jobs or of one payer's, and the names of the tiers."""
    tiers = {tier.id: tier.name for tier in visit.services.network.tiers}
    ids = {name: tier_id for tier_id, name in tiers.items()}
    filters = (
        Filter("q", "Name, id or payer", reads.matches),
        Filter("status", "Status", lambda value: Job.status == value, tuple(JobStatus)),
        Filter("tier", "Tier", lambda value: Job.tier_id == ids[value], tuple(ids)),
    )
    table = Table(visit, "jobs", _COLUMNS, "-submitted", Job.id, filters)
    with visit.services.database.reading() as session:
        table.fetch(session, reads.job_lines(payer))
    return {"table": table, "tiers": tiers}
