"""Routes of heartbeats and hardware benchmarks."""

from typing import Annotated

from fastapi import APIRouter, Path

from market.accounts.deps import CurrentAccount
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.platform.db.base import utc_now
from market.platform.http.deps import ServicesDep, Uow
from market.platform.http.errors import UnknownTier
from market.platform.http.refusals import refusals
from market.platform.storage.client import Storage
from market.providers import node_sessions
from market.providers import service as providers
from market.providers.benchmarks import service as benchmarks_service
from market.providers.benchmarks.service import Workload
from market.providers.environment_classes import reason_of
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
    WalletInUse,
)
from market.providers.liveness import Liveness
from market.providers.router import tier_name
from market.providers.schemas import (
    AnswerRequest,
    BegunView,
    BenchmarkRequest,
    ChallengedView,
    HeartbeatRequest,
    HeartbeatView,
    OpeningsView,
    VerdictView,
    WorkCommitment,
    WorkView,
)

router = APIRouter(prefix="/v1", tags=["providers"], route_class=IdempotentRoute)

BenchmarkId = Annotated[str, Path(description="The challenge's id, from POST /v1/benchmarks.")]


@router.post("/providers/me/heartbeat", responses=refusals(NotRegistered, WalletInUse))
def send_heartbeat(
    body: HeartbeatRequest, account: CurrentAccount, services: ServicesDep, session: Uow
) -> HeartbeatView:
    """Send a heartbeat with a signed challenge; without heartbeats a node gets no work."""
    at, address, timeout = utc_now(), account.address, services.settings.heartbeat_timeout_seconds
    now = at.timestamp()
    counted = services.part(Liveness).is_answered(address, body.challenge, body.signature, now)
    named = counted and bool(body.session)
    if named and not node_sessions.acquire_wallet_lock(
        services.redis, address, body.session, body.predecessors, timeout
    ):
        raise WalletInUse(f"another node with the wallet {address} sent a heartbeat within the last {timeout:g} s")
    provider = (
        providers.heartbeat(session, address, body.round_trip_ms) if counted else providers.require(session, address)
    )
    # Only a signed heartbeat starts the time of a benchmark; a session token does not suffice.
    benchmark_by = provider.rebenchmark_by
    if counted:
        is_at_work = services.part(Workload).is_at_work
        benchmark_by = benchmarks_service.benchmark_deadline(session, services.network, provider, at, is_at_work)
    return HeartbeatView(
        status=provider.status,
        reason=reason_of(services.settings, provider),
        tier=tier_name(services.network, provider.tier_id),
        benchmark_by=benchmark_by,
        counted=counted,
        challenge=services.part(Liveness).challenge(address, now),
        next_within_seconds=timeout,
        verifiers_of_class=providers.verifiers_of_class(
            session, services.settings, provider.environment_class, address, at
        ),
    )


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
    return benchmarks_service.finish_benchmark(
        services.database, services.part(Storage), services.network, account.address, benchmark_id, body.cid
    )
