"""Routes of hardware benchmarks."""

from typing import Annotated

from fastapi import APIRouter, Path

from market.accounts.deps import CurrentAccount
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.platform.http.deps import ServicesDep, Uow
from market.platform.http.errors import UnknownTier
from market.platform.http.refusals import refusals
from market.providers.benchmarks import service as benchmarks_service
from market.providers.benchmarks.service import Workload
from market.providers.errors import (
    AnswerNotFound,
    BenchmarkAnswered,
    BenchmarkAtWork,
    BenchmarkBusy,
    BenchmarkNotFound,
    BenchmarkOutOfTurn,
    BenchmarkPaused,
    HardwareInsufficient,
    NotRegistered,
    ProviderJailed,
    VerifierNeedsNone,
)
from market.providers.schemas import (
    AnswerRequest,
    BegunView,
    BenchmarkRequest,
    ChallengedView,
    OpeningsView,
    VerdictView,
    WorkCommitment,
    WorkView,
)

router = APIRouter(prefix="/v1", tags=["providers"], route_class=IdempotentRoute)

BenchmarkId = Annotated[str, Path(description="The challenge's id, from POST /v1/benchmarks.")]


@router.post(
    "/benchmarks",
    status_code=201,
    responses=refusals(
        UnknownTier,
        NotRegistered,
        VerifierNeedsNone,
        ProviderJailed,
        HardwareInsufficient,
        BenchmarkPaused,
        BenchmarkAtWork,
    ),
    dependencies=[IDEMPOTENT_ROUTE],
)
def start_benchmark(
    body: BenchmarkRequest, account: CurrentAccount, services: ServicesDep, session: Uow
) -> ChallengedView:
    """Create a tier's challenge. Prepare its pool; the timed part begins later."""
    is_at_work = services.part(Workload).is_at_work
    run = benchmarks_service.start_benchmark(session, services.network, account.address, body.tier, is_at_work)
    work = WorkView(**run.work)
    return ChallengedView(id=run.id, seed=run.seed, work=work, tier=body.tier, deadline_at=run.deadline_at)


@router.post(
    "/benchmarks/{benchmark_id}/ready",
    responses=refusals(BenchmarkNotFound, BenchmarkAnswered, BenchmarkOutOfTurn),
)
def begin_benchmark(
    benchmark_id: BenchmarkId, account: CurrentAccount, services: ServicesDep, session: Uow
) -> BegunView:
    """Report that the pool is ready. The timed part begins with this response."""
    run = benchmarks_service.begin_work(session, services.network, account.address, benchmark_id)
    return BegunView(nonce=str(run.nonce), deadline_at=run.deadline_at)


@router.post(
    "/benchmarks/{benchmark_id}/commit",
    responses=refusals(BenchmarkNotFound, BenchmarkAnswered, BenchmarkOutOfTurn, BenchmarkPaused),
)
def commit_benchmark(
    benchmark_id: BenchmarkId, body: WorkCommitment, account: CurrentAccount, services: ServicesDep, session: Uow
) -> OpeningsView:
    """Commit to the work, which ends the timed part. The response selects the steps to open."""
    run = benchmarks_service.commit_work(session, services.network, account.address, benchmark_id, body.commitment)
    return OpeningsView(
        secret=str(run.secret),
        in_time=benchmarks_service.is_in_time(run),
        mflops=(run.flops_per_second or 0) // 10**6,
        answer_seconds=benchmarks_service.tier_of(services.network, run).benchmark.answer_seconds,
    )


@router.post(
    "/benchmarks/{benchmark_id}/answer",
    responses=refusals(
        BenchmarkNotFound, BenchmarkAnswered, BenchmarkOutOfTurn, AnswerNotFound, BenchmarkBusy, ProviderJailed
    ),
)
def answer_benchmark(
    benchmark_id: BenchmarkId, body: AnswerRequest, account: CurrentAccount, services: ServicesDep
) -> VerdictView:
    """Answer a challenge with the CID of the uploaded result. A correct one earns the tier."""
    return benchmarks_service.finish_benchmark(services, account.address, benchmark_id, body.cid)
