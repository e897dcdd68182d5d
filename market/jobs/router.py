"""Quotes and jobs over REST."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from market.accounts.deps import CurrentAccount
from market.accounts.errors import NotAuthenticated
from market.api.deps import ServicesDep, Uow
from market.api.errors import (
    ChainDown,
    InvalidSignature,
    KeyReused,
    NonceReplayed,
    RequestInFlight,
    StorageDown,
    UnknownTier,
)
from market.api.idempotency import Idempotent
from market.api.openapi import refusals
from market.auctions import service as auctions
from market.db.base import utc_now
from market.jobs import matching, quotes, submission, views
from market.jobs.errors import (
    BudgetBelowOneUnit,
    DatasetNotFound,
    InsufficientBalance,
    InvalidDataset,
    InvalidOrder,
    InvalidSpec,
    JobNotFound,
    NotCancellable,
    PermitTooShort,
)
from market.jobs.schemas import CheckpointView, JobPage, JobSpec, JobView, Quote, SubmitJob, UnitView
from market.jobs.why import why
from market.jobs.why_schemas import Why

router = APIRouter(prefix="/v1", tags=["jobs"])

_JOB_REFUSALS = (
    NotAuthenticated,
    InvalidSpec,
    UnknownTier,
    InvalidOrder,
    BudgetBelowOneUnit,
    DatasetNotFound,
    InvalidDataset,
    StorageDown,
    ChainDown,
)

JobId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$", description="The job's id: 0x hex of 32 bytes.")]


@router.post("/quotes", responses=refusals(*_JOB_REFUSALS))
def quote_job(body: JobSpec, account: CurrentAccount, services: ServicesDep) -> Quote:
    """Price a job and get the order and permit to sign for it. Writes nothing."""
    return quotes.quote(
        body,
        account.address,
        network=services.network,
        deployment=services.deployment,
        chain=services.chain,
        storage=services.storage,
        now=utc_now(),
    )


@router.post(
    "/jobs",
    status_code=201,
    response_model=JobView,
    responses=refusals(
        *_JOB_REFUSALS,
        InsufficientBalance,
        InvalidSignature,
        PermitTooShort,
        NonceReplayed,
        KeyReused,
        RequestInFlight,
    ),
)
def submit_job(body: SubmitJob, account: CurrentAccount, services: ServicesDep, once: Idempotent) -> JSONResponse:
    """Submit a quoted job with the caller's signatures over its order and permit."""
    earlier = once.earlier_answer()
    if earlier is not None:
        return earlier
    checked = submission.check(
        body,
        account.address,
        network=services.network,
        deployment=services.deployment,
        chain=services.chain,
        storage=services.storage,
        now=utc_now(),
    )

    def write(session: Session) -> tuple[int, dict[str, object]]:
        job = submission.submit(session, checked)
        return 201, views.job_view(session, services.network, job).model_dump(mode="json")

    return once.run(write)


@router.get("/jobs", responses=refusals(NotAuthenticated, JobNotFound))
def list_jobs(
    account: CurrentAccount,
    services: ServicesDep,
    session: Uow,
    after: Annotated[str | None, Query(description="Id of the last job of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> JobPage:
    """The caller's jobs, newest first."""
    return views.job_page(session, services.network, account, after, limit)


@router.get("/jobs/{job_id}", responses=refusals(NotAuthenticated, JobNotFound))
def get_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Uow) -> JobView:
    """One job with its progress."""
    return views.job_view(session, services.network, views.visible_job(session, account, job_id))


@router.get("/jobs/{job_id}/why", responses=refusals(NotAuthenticated, JobNotFound))
def explain_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Uow) -> Why:
    """Why the job has not been matched: what removes how many nodes, what price would clear now, what would help."""
    job = views.visible_job(session, account, job_id)
    rounds = auctions.standing(session, job.tier_id, job.id)
    return why(session, services.settings, services.network, job, rounds)


@router.get("/jobs/{job_id}/units", responses=refusals(NotAuthenticated, JobNotFound))
def list_units(job_id: JobId, account: CurrentAccount, session: Uow) -> list[UnitView]:
    """The job's units of work, by round and slot."""
    return views.unit_views(session, views.visible_job(session, account, job_id))


@router.get("/jobs/{job_id}/checkpoints", responses=refusals(NotAuthenticated, JobNotFound))
def list_checkpoints(job_id: JobId, account: CurrentAccount, session: Uow) -> list[CheckpointView]:
    """The job's checkpoints, by round."""
    return views.checkpoint_views(session, views.visible_job(session, account, job_id))


@router.post("/jobs/{job_id}/cancel", responses=refusals(NotAuthenticated, JobNotFound, NotCancellable))
def cancel_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Uow) -> JobView:
    """Stop a job. What was delivered is still checked and paid; the rest is refunded."""
    return views.job_view(session, services.network, matching.cancel(session, account, job_id))
