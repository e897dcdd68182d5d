"""Quotes, jobs, balances and deposits over REST."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from market.accounts.deps import CurrentAccount, confirms_caller
from market.accounts.errors import NotPermitted, OrganisationNotFound, SpendingCapReached
from market.accounts.idempotency import IDEMPOTENT_ROUTE, Idempotent, IdempotentRoute
from market.auctions import service as auctions
from market.jobs.access import visible_job
from market.jobs.errors import JobNotFound
from market.orders import amendments, balance, clones, submission, views
from market.orders.errors import (
    BalanceTaken,
    BaseModelNotFound,
    BudgetBelowOneUnit,
    DatasetNotFound,
    InsufficientBalance,
    InvalidBaseModel,
    InvalidDataset,
    InvalidDeposit,
    InvalidOrder,
    InvalidSpec,
    NotAmendable,
    NotCancellable,
    NothingToContinue,
    NotPausable,
    OrderFixed,
    PermitNonceUsed,
)
from market.orders.quote_advice import Advice
from market.orders.reports.efficiency import Efficiency, efficiency
from market.orders.reports.match_diagnostics import diagnose_unmatched_job
from market.orders.reports.schemas import JobMetrics, Why
from market.orders.schemas import (
    AmendJob,
    BalanceView,
    CheckpointView,
    CloneJob,
    DepositView,
    ExtendJob,
    JobFilters,
    JobPage,
    JobSpec,
    JobView,
    NewDeposit,
    ProposedJob,
    Quote,
    SubmitJob,
    UnitView,
)
from market.platform.db.session import UnitOfWork
from market.platform.http.deps import Reads, ServicesDep, Uow
from market.platform.http.errors import ChainDown, InvalidSignature, NonceReplayed, StorageDown, UnknownTier
from market.platform.http.refusals import refusals
from market.platform.http.scopes import scoped
from market.platform.http.services import Services
from market.platform.http.types import WeiString

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=IdempotentRoute)
_JOB_REFUSALS = (
    InvalidSpec,
    UnknownTier,
    InvalidOrder,
    BudgetBelowOneUnit,
    BaseModelNotFound,
    DatasetNotFound,
    InvalidBaseModel,
    InvalidDataset,
    StorageDown,
    ChainDown,
)
_ACT_REFUSALS = (JobNotFound, NotPermitted)
DepositAmount = Annotated[WeiString | None, Query(description="Wei of a deposit; the answer then has its permit.")]
JobId = Annotated[str, Path(pattern=r"^0x[0-9a-f]{64}$", description="The job's id: 0x hex of 32 bytes.")]


@router.post("/quotes", responses=refusals(*_JOB_REFUSALS), openapi_extra=scoped("jobs:read"))
def quote_job(request: JobSpec, account: CurrentAccount, services: ServicesDep) -> Quote:
    """Price a job and get the order to sign for it. Writes nothing."""
    return submission.quote(request, account.address, services)


@router.post(
    "/jobs",
    status_code=201,
    response_model=JobView,
    responses=refusals(
        *_JOB_REFUSALS,
        InsufficientBalance,
        InvalidSignature,
        NonceReplayed,
        OrganisationNotFound,
        NotPermitted,
        SpendingCapReached,
    ),
)
@confirms_caller
def submit_job(request: SubmitJob, account: CurrentAccount, services: ServicesDep, once: Idempotent) -> Response:
    """Submit a quoted job with the signature over its order, which draws from the balance."""
    earlier = once.earlier_answer()
    if earlier is not None:
        return earlier
    signed = submission.check(request, account.address, services)

    def write(unit: UnitOfWork) -> tuple[int, JobView]:
        return 201, views.new_job_view(services.network, submission.write(unit, signed, account))

    def write_within_caps(session: Session) -> tuple[int, JobView]:
        return 201, views.new_job_view(services.network, submission.write_within_caps(session, signed, account))

    while True:
        try:
            return once.run(write_within_caps, write if submission.is_unlimited(request, account) else None)
        except BalanceTaken:
            signed = submission.check_balance(signed, services)  # refuses, unless the balance has grown


@router.get(
    "/jobs",
    response_model=JobPage,
    responses=refusals(JobNotFound, OrganisationNotFound, NotPermitted, UnknownTier),
)
def list_jobs(
    account: CurrentAccount,
    services: ServicesDep,
    session: Reads,
    filters: Annotated[JobFilters, Query()],
) -> Response:
    """Your jobs, or those of an organisation that you belong to, newest first."""
    return _json(views.job_page(session, services.network, account, filters))


@router.get("/jobs/{job_id}", response_model=JobView, responses=refusals(JobNotFound))
def get_job(job_id: JobId, account: CurrentAccount, services: ServicesDep) -> Response:
    """One job with its progress."""
    with services.database.read_throttled() as session:
        return _json(views.job_view(session, services.network, visible_job(session, account, job_id)))


def _json(view: BaseModel) -> Response:
    """Return the view's JSON without FastAPI's second validation in another thread."""
    return Response(view.model_dump_json(by_alias=True), media_type="application/json")


@router.get("/jobs/{job_id}/why", responses=refusals(JobNotFound))
def explain_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Reads) -> Why:
    """Reasons why the job is not matched: nodes removed, a clearing price, helpful changes."""
    job = visible_job(session, account, job_id)
    rounds = auctions.book_status(session, job.tier_id, job.id)
    return diagnose_unmatched_job(session, services.settings, services.network, job, rounds)


@router.get("/jobs/{job_id}/units", responses=refusals(JobNotFound))
def list_units(job_id: JobId, account: CurrentAccount, session: Reads) -> list[UnitView]:
    """The job's units of work, by round and slot."""
    return views.unit_views(session, visible_job(session, account, job_id))


@router.get("/jobs/{job_id}/checkpoints", responses=refusals(JobNotFound))
def list_checkpoints(job_id: JobId, account: CurrentAccount, session: Reads) -> list[CheckpointView]:
    """The job's checkpoints, by round."""
    return views.checkpoint_views(session, visible_job(session, account, job_id))


@router.get("/jobs/{job_id}/metrics", responses=refusals(JobNotFound))
def get_job_metrics(job_id: JobId, account: CurrentAccount, session: Reads) -> JobMetrics:
    """Metrics of the training by round: losses, times and included units."""
    return views.job_metrics(session, visible_job(session, account, job_id))


@router.get("/jobs/{job_id}/efficiency", responses=refusals(JobNotFound))
def get_job_efficiency(job_id: JobId, account: CurrentAccount, session: Uow) -> Efficiency:
    """Efficiency of the training: speed, compute, transfer, wait and bytes.

    `claims` names the figures that nodes report.
    """
    return efficiency(session, visible_job(session, account, job_id))


@router.post(
    "/jobs/{job_id}/cancel", responses=refusals(*_ACT_REFUSALS, NotCancellable), dependencies=[IDEMPOTENT_ROUTE]
)
def cancel_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Uow) -> JobView:
    """Cancel a job. Delivered units are verified and paid, the rest is refunded.

    A job with a pending deposit shows `cancel_requested`. It is cancelled and refunded once the deposit is final.
    """
    return views.job_view(session, services.network, amendments.cancel(session, account, job_id))


@router.patch("/jobs/{job_id}", responses=refusals(*_ACT_REFUSALS, NotAmendable, OrderFixed, InvalidOrder))
def amend_job(job_id: JobId, body: AmendJob, account: CurrentAccount, services: ServicesDep, session: Uow) -> JobView:
    """Change the price limit or the end of the wait of a waiting job, up to the signed order.

    For more, cancel the job and submit a clone.
    """
    job = amendments.amend(session, account, job_id, body.max_price, body.wait_until)
    return views.job_view(session, services.network, job)


@router.post("/jobs/{job_id}/pause", responses=refusals(*_ACT_REFUSALS, NotPausable), dependencies=[IDEMPOTENT_ROUTE])
def pause_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Uow) -> JobView:
    """Pause a job. Leased units are finished and paid. Deadlines and refunds do not change."""
    return views.job_view(session, services.network, amendments.pause(session, account, job_id, services.network))


@router.post("/jobs/{job_id}/resume", responses=refusals(*_ACT_REFUSALS, NotPausable), dependencies=[IDEMPOTENT_ROUTE])
def resume_job(job_id: JobId, account: CurrentAccount, services: ServicesDep, session: Uow) -> JobView:
    """Resume a paused job, with nodes of the same class at its price or less."""
    return views.job_view(session, services.network, amendments.resume(session, account, job_id))


@router.post("/jobs/{job_id}/clone", responses=refusals(*_JOB_REFUSALS, JobNotFound), openapi_extra=scoped("jobs:read"))
def clone_job(job_id: JobId, body: CloneJob, account: CurrentAccount, services: ServicesDep) -> ProposedJob:
    """Quote a copy of the job, ready to sign. Writes nothing."""
    with services.database.transaction() as session:
        request = clones.clone(session, services.network, account, job_id, body)
    return _proposed(request, account.address, services)


@router.post(
    "/jobs/{job_id}/extend",
    responses=refusals(*_JOB_REFUSALS, JobNotFound, NothingToContinue),
    openapi_extra=scoped("jobs:read"),
)
def extend_job(job_id: JobId, body: ExtendJob, account: CurrentAccount, services: ServicesDep) -> ProposedJob:
    """Quote a continuation from the job's last or best checkpoint. Writes nothing."""
    with services.database.transaction() as session:
        request, advice = clones.extend(session, services.network, account, job_id, body)
    return _proposed(request, account.address, services, advice)


def _proposed(request: JobSpec, payer: str, services: Services, advice: Iterable[Advice] = ()) -> ProposedJob:
    quote = submission.quote(request, payer, services)
    quote.advice[:0] = advice
    data = request.data_settings | {"validation_samples": quote.validation_samples}  # fewer, if nodes are more
    request = request.model_copy(update={"data_settings": data})
    return ProposedJob(request=request.model_dump(mode="json", by_alias=True), quote=quote)


@router.get("/balance", responses=refusals(InvalidDeposit, ChainDown))
def get_balance(account: CurrentAccount, services: ServicesDep, deposit: DepositAmount = None) -> BalanceView:
    """Return the caller's balance in the escrow, which its orders draw from."""
    return balance.balance(account.address, deposit, services)


@router.post(
    "/deposits",
    status_code=202,
    responses=refusals(InvalidDeposit, InvalidSignature, InsufficientBalance, PermitNonceUsed, ChainDown),
    dependencies=[IDEMPOTENT_ROUTE],
)
def create_deposit(body: NewDeposit, account: CurrentAccount, services: ServicesDep, session: Uow) -> DepositView:
    """Relay a deposit with the caller's permit. GET /v1/balance shows when it is on chain.

    A repeated request returns the first one's deposit.
    """
    return balance.deposit(session, account.address, body, services)
