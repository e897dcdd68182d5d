"""Page of one job, for its payer, its organisation and staff."""

from typing import Annotated

from fastapi import APIRouter, Form, Path
from fastapi.responses import HTMLResponse, RedirectResponse

from market.auctions import service as auctions
from market.console import charts
from market.console.page import Audience, Page
from market.console.pages.mine import sample
from market.console.principals import principal_of
from market.console.reads import jobs as reads
from market.console.tables import Column, Filter, Table
from market.console.visits import CurrentVisit
from market.domain.lifecycle import JobStatus, UnitStatus
from market.jobs.access import visible_job
from market.jobs.models import Job
from market.orders import amendments
from market.orders.reports.match_diagnostics import diagnose_unmatched_job
from market.platform.http.errors import InvalidRequest
from market.settings import split_list
from market.training.checkpoints import service as checkpoints_service
from market.training.units.models import Unit
from zoo_protocol.verification.training_faults import DIVERGED, DIVERGED_ADVICE

router = APIRouter()
router.include_router(sample.router)
PAGE = Page("/jobs/", "Job", "", Audience.SIGNED_IN, router)
JobId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$")]
PATH = (
    JobStatus.SUBMITTED,
    JobStatus.FUNDED,
    JobStatus.MATCHING,
    JobStatus.RUNNING,
    JobStatus.VERIFYING,
    JobStatus.SETTLING,
    JobStatus.SETTLED,
)
"""Usual order of states; other ends join it before settling."""
_CANCELLABLE = frozenset({JobStatus.SUBMITTED, JobStatus.FUNDED, JobStatus.MATCHING, JobStatus.RUNNING})
_CONFIRMED = 10
_COLUMNS = (
    Column("round", "Round", Unit.round, "number"),
    Column("slot", "Replica", kind="number"),
    Column("provider", "Provider"),
    Column("status", "Verdict"),
    Column("sampled", "Sampled segments"),
    Column("rate", "Rate", kind="number"),
    Column("bytes", "Sent", Unit.uploaded_bytes, "number"),
    Column("dispute", "Dispute"),
)
_FILTERS = (Filter("status", "Verdict", lambda value: Unit.status == value, tuple(UnitStatus)),)


@router.get("/jobs/{job_id}")
def show_job(visit: CurrentVisit, job_id: JobId) -> HTMLResponse:
    """Return the page."""
    principal = principal_of(visit.wallet)
    table = Table(visit, "units", _COLUMNS, "-round", Unit.id, _FILTERS)
    with visit.services.database.reading() as session:
        job = visible_job(session, principal, job_id)
        moves = reads.timeline(session, job_id)
        points = reads.rounds(session, job_id)
        units = table.fetch(session, reads.unit_lines(job_id))
        verdicts = reads.verdicts(session, [unit.id for unit in units])
        checkpoints = reads.checkpoints(session, job_id)
        lines = reads.settled_lines(session, job_id)
        rollbacks = checkpoints_service.rollback_sentences(session, job_id)
        sampling = sample.form_of(session, principal, job)
    ended = [point for point in points if point.at is not None]
    return visit.render(
        "jobs/job.html",
        job=job,
        tier=next((tier.name for tier in visit.services.network.tiers if tier.id == job.tier_id), job.tier_id),
        steps=_steps(job, [move.to_status for move in moves]),
        moves=moves,
        loss=charts.number_series(
            [(point.round, [point.validation_loss, point.train_loss]) for point in ended], ("validation", "training")
        ),
        traffic=charts.number_series(
            [(point.round, [point.uploaded_bytes]) for point in ended if point.round], ("sent",)
        ),
        points=points,
        rollbacks=rollbacks,
        advice=DIVERGED_ADVICE if job.reason == DIVERGED else None,
        table=table,
        verdicts=verdicts,
        unsampled=reads.Verdicts(),
        checkpoints=checkpoints,
        lines=lines,
        sampling=sampling,
        gateway=split_list(visit.services.settings.gateway_url)[0].rstrip("/"),
        may_cancel=job.status in _CANCELLABLE and (principal.is_admin or principal.address == job.payer),
        confirmed=job_id[:_CONFIRMED],
    )


@router.get("/jobs/{job_id}/why")
def explain_wait(visit: CurrentVisit, job_id: JobId) -> HTMLResponse:
    """Return the page with the reasons why the job waits; the job's page loads it as a part."""
    services = visit.services
    with services.database.reading() as session:
        job = visible_job(session, principal_of(visit.wallet), job_id)
        books = auctions.book_status(session, job.tier_id, job_id)
        found = diagnose_unmatched_job(session, services.settings, services.network, job, books)
    return visit.render("jobs/why.html", job=job, why=found)


@router.post("/jobs/{job_id}/cancel")
def cancel_job(visit: CurrentVisit, job_id: JobId, confirm: Annotated[str, Form()]) -> RedirectResponse:
    """Cancel the job. Delivered units are verified and paid, the rest is refunded."""
    if confirm.strip().lower() != job_id[:_CONFIRMED]:
        raise InvalidRequest(
            f"confirm is {confirm[:20]!r}; expected {job_id[:_CONFIRMED]}",
            field="confirm",
            remedy="Type the first ten characters of the job's id.",
        )
    with visit.services.database.transaction() as session:
        amendments.cancel(session, principal_of(visit.wallet), job_id)
    return visit.back_to(f"/jobs/{job_id}")


def _steps(job: Job, reached: list[str | None]) -> list[tuple[str, str]]:
    """Return (status, ``done``, ``now`` or nothing) of the states on the job's way."""
    path = [*PATH]
    other = next((status for status in reached if status is not None and status not in PATH), None)
    if job.status not in PATH:
        other = job.status
    if other is not None:
        path = [status for status in PATH[:4] if status in reached or status == PATH[0]] + [JobStatus(other), *PATH[5:]]
    now = path.index(JobStatus(job.status)) if job.status in path else len(path)
    return [(status, "now" if at == now else "done" if at < now else "") for at, status in enumerate(path)]
