"""Registration, heartbeats, benchmarks and asks of nodes; the public list of providers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from market.accounts.deps import CurrentAccount
from market.accounts.errors import NotAuthenticated
from market.api.deps import Reads, ServicesDep, Uow
from market.api.errors import InvalidSignature, KeyReused, NonceReplayed, RequestInFlight, UnknownTier
from market.api.idempotency import ANSWERED_ONCE, IdempotentRoute
from market.api.openapi import refusals
from market.api.services import Services
from market.api.types import AddressString, HashString
from market.db.base import utc_now
from market.domain.network import NetworkParameters
from market.domain.uptime import uptime_bps
from market.providers import asks, benchmarks, records, service, sessions
from market.providers.attestations import attested_until
from market.providers.benchmarks import Workload
from market.providers.classes import reason_of, require_accepted
from market.providers.errors import (
    AnswerNotFound,
    AskNotFound,
    BenchmarkAnswered,
    BenchmarkAtWork,
    BenchmarkBusy,
    BenchmarkNotFound,
    BenchmarkOutOfTurn,
    BenchmarkPaused,
    EnvironmentNotAccepted,
    HardwareInsufficient,
    InvalidAsk,
    KindFixed,
    NotRegistered,
    ProviderJailed,
    ProviderNotFound,
    TierNotEarned,
    VerifierNeedsNone,
    WalletInUse,
)
from market.providers.liveness import Liveness
from market.providers.models import AskRow, DowntimePenalty, Provider, ProviderEpoch
from market.providers.schemas import (
    AnswerRequest,
    AskRequest,
    AskView,
    BegunView,
    BenchmarkRequest,
    ChallengedView,
    EpochView,
    HeartbeatRequest,
    HeartbeatView,
    OpeningsView,
    PenaltyView,
    ProviderPage,
    ProviderView,
    RegistrationRequest,
    VerdictView,
    WorkCommitment,
    WorkView,
)
from market.storage.service import Storage
from zoo_protocol.messages import Ask

router = APIRouter(prefix="/v1", tags=["providers"], route_class=IdempotentRoute)

ProviderAddress = Annotated[AddressString, Path(description="The node's wallet.")]
BenchmarkId = Annotated[str, Path(description="The challenge's id, as POST /v1/benchmarks gave it.")]
AskId = Annotated[HashString, Path(description="The ask's id: the EIP-712 struct hash.")]

ONCE_REFUSALS = (KeyReused, RequestInFlight)


@router.post(
    "/providers",
    status_code=201,
    responses=refusals(NotAuthenticated, KindFixed, EnvironmentNotAccepted, *ONCE_REFUSALS),
    dependencies=[ANSWERED_ONCE],
)
def register_provider(
    body: RegistrationRequest, account: CurrentAccount, services: ServicesDep, session: Uow
) -> ProviderView:
    """Register your wallet as a provider or verifier, or renew what it says of itself."""
    require_accepted(services.settings, body.environment_class)
    service.register(session, services.network, account.address, body)
    return _provider_views(session, services, [service.get(session, account.address)])[0]


@router.get("/providers")
def list_providers(
    services: ServicesDep,
    session: Reads,
    after: Annotated[AddressString | None, Query(description="Address of the last one seen.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
) -> ProviderPage:
    """All providers and verifiers, by address."""
    found = service.list_page(session, after or "", limit)
    return ProviderPage(
        items=_provider_views(session, services, found),
        next_after=found[-1][0].address if len(found) == limit else None,
    )


@router.get("/providers/{address}", responses=refusals(ProviderNotFound))
def get_provider(address: ProviderAddress, services: ServicesDep, session: Reads) -> ProviderView:
    """One provider or verifier."""
    return _provider_views(session, services, [service.get(session, address)])[0]


@router.get("/providers/{address}/epochs", responses=refusals(ProviderNotFound))
def list_epochs(
    address: ProviderAddress,
    session: Reads,
    limit: Annotated[int, Query(ge=1, le=180, description="How many at most.")] = 30,
) -> list[EpochView]:
    """A node's newest days: what its reliability and its rewards rest on."""
    service.get(session, address)
    penalties = {row.epoch: row for row in records.penalties_of(session, address, limit)}
    return [_epoch_view(row, penalties.get(row.epoch)) for row in records.epochs_of(session, address, limit)]


@router.post("/providers/me/heartbeat", responses=refusals(NotAuthenticated, NotRegistered, WalletInUse))
def send_heartbeat(
    body: HeartbeatRequest, account: CurrentAccount, services: ServicesDep, session: Uow
) -> HeartbeatView:
    """Say that your node is alive; who does not gets no work. It counts if your wallet signed the last challenge."""
    at, address, silence = utc_now(), account.address, services.settings.heartbeat_timeout_seconds
    now = at.timestamp()
    counted = services.part(Liveness).is_answered(address, body.challenge, body.signature, now)
    named = counted and bool(body.session)
    if named and not sessions.take(services.redis, address, body.session, body.predecessors, silence):
        raise WalletInUse(f"another node with the wallet {address} was heard of within the last {silence:g} s")
    provider = service.heartbeat(session, address, body.round_trip_ms) if counted else service.require(session, address)
    # Who has no more than a session's token does not start the time in which the wallet has to show its hardware.
    benchmark_by = provider.rebenchmark_by
    if counted:
        is_at_work = services.part(Workload).is_at_work
        benchmark_by = benchmarks.due_by(session, services.network, provider, at, is_at_work)
    return HeartbeatView(
        status=provider.status,
        reason=reason_of(services.settings, provider),
        tier=tier_name(services.network, provider.tier_id),
        benchmark_by=benchmark_by,
        counted=counted,
        challenge=services.part(Liveness).challenge(address, now),
        next_within_seconds=silence,
        verifiers_of_class=service.verifiers_of_class(
            session, services.settings, provider.environment_class, address, at
        ),
    )


@router.post(
    "/benchmarks",
    status_code=201,
    responses=refusals(
        NotAuthenticated,
        UnknownTier,
        NotRegistered,
        VerifierNeedsNone,
        ProviderJailed,
        HardwareInsufficient,
        BenchmarkPaused,
        BenchmarkAtWork,
        *ONCE_REFUSALS,
    ),
    dependencies=[ANSWERED_ONCE],
)
def start_benchmark(
    body: BenchmarkRequest, account: CurrentAccount, services: ServicesDep, session: Uow
) -> ChallengedView:
    """Ask for a tier's challenge. No clock runs yet: make its pool first."""
    is_at_work = services.part(Workload).is_at_work
    run = benchmarks.start_benchmark(session, services.network, account.address, body.tier, is_at_work)
    work = WorkView(**run.work)
    return ChallengedView(id=run.id, seed=run.seed, work=work, tier=body.tier, deadline_at=run.deadline_at)


@router.post(
    "/benchmarks/{benchmark_id}/ready",
    responses=refusals(NotAuthenticated, BenchmarkNotFound, BenchmarkAnswered, BenchmarkOutOfTurn),
)
def begin_benchmark(
    benchmark_id: BenchmarkId, account: CurrentAccount, services: ServicesDep, session: Uow
) -> BegunView:
    """Say that the pool is ready. The clock runs from this answer on."""
    run = benchmarks.begin_work(session, services.network, account.address, benchmark_id)
    return BegunView(nonce=str(run.nonce), deadline_at=run.deadline_at)


@router.post(
    "/benchmarks/{benchmark_id}/commit",
    responses=refusals(NotAuthenticated, BenchmarkNotFound, BenchmarkAnswered, BenchmarkOutOfTurn, BenchmarkPaused),
)
def commit_benchmark(
    benchmark_id: BenchmarkId, body: WorkCommitment, account: CurrentAccount, services: ServicesDep, session: Uow
) -> OpeningsView:
    """Commit to the work, which stops the clock; the answer says what to open."""
    run = benchmarks.commit_work(session, services.network, account.address, benchmark_id, body.commitment)
    return OpeningsView(
        secret=str(run.secret),
        in_time=benchmarks.is_in_time(run),
        mflops=(run.flops_per_second or 0) // 10**6,
        answer_seconds=benchmarks.tier_of(services.network, run).benchmark.answer_seconds,
    )


@router.post(
    "/benchmarks/{benchmark_id}/answer",
    responses=refusals(
        NotAuthenticated,
        BenchmarkNotFound,
        BenchmarkAnswered,
        BenchmarkOutOfTurn,
        AnswerNotFound,
        BenchmarkBusy,
        ProviderJailed,
    ),
)
def answer_benchmark(
    benchmark_id: BenchmarkId, body: AnswerRequest, account: CurrentAccount, services: ServicesDep
) -> VerdictView:
    """Answer a challenge with the CID of the uploaded result; passing it earns the tier."""
    verdict = benchmarks.finish_benchmark(
        services.database, services.part(Storage), services.network, account.address, benchmark_id, body.cid
    )
    return VerdictView(passed=verdict.passed, reason=verdict.reason, tier=verdict.tier, mflops=verdict.mflops)


@router.post(
    "/asks",
    status_code=201,
    responses=refusals(
        NotAuthenticated,
        InvalidSignature,
        InvalidAsk,
        UnknownTier,
        NotRegistered,
        VerifierNeedsNone,
        ProviderJailed,
        TierNotEarned,
        NonceReplayed,
        *ONCE_REFUSALS,
    ),
    dependencies=[ANSWERED_ONCE],
)
def place_ask(body: AskRequest, account: CurrentAccount, services: ServicesDep, session: Uow) -> AskView:
    """Put your signed ask into the book, in place of your earlier one."""
    if body.ask.provider != account.address:
        raise InvalidSignature("you can place your own asks only", field="ask.provider")
    ask = Ask(**body.ask.model_dump(mode="python"))
    row = asks.place_ask(session, services.network, services.domain, ask, body.signature)
    return _ask_view(services.network, row)


@router.get("/asks", responses=refusals(NotAuthenticated))
def list_asks(account: CurrentAccount, services: ServicesDep, session: Reads) -> list[AskView]:
    """Your own asks, newest first. The book of others is sealed."""
    return [_ask_view(services.network, row) for row in asks.asks_of(session, account.address)]


@router.delete("/asks/{ask_id}", status_code=204, responses=refusals(NotAuthenticated, AskNotFound))
def cancel_ask(ask_id: AskId, account: CurrentAccount, session: Uow) -> None:
    """Take your ask out of the book; work that it won goes on."""
    asks.cancel_ask(session, account.address, ask_id)


def tier_name(network: NetworkParameters, tier_id: int | None) -> str | None:
    return next((tier.name for tier in network.tiers if tier.id == tier_id), None)


def _provider_views(session: Session, services: Services, found: Sequence[tuple[Provider, int]]) -> list[ProviderView]:
    until = attested_until(session, services.network, [provider.address for provider, _ in found], utc_now())
    return [_provider_view(services, provider, stake, until.get(provider.address)) for provider, stake in found]


def _provider_view(services: Services, provider: Provider, stake_wei: int, attested: datetime | None) -> ProviderView:
    return ProviderView(
        address=provider.address,
        kind="verifier" if provider.kind == "verifier" else "provider",
        name=provider.name,
        region=provider.region,
        hardware=provider.hardware,
        environment_class=provider.environment_class,
        site=provider.site,
        asn=provider.asn,
        owner=provider.owner,
        round_trip_ms=provider.round_trip_ms,
        status=provider.status,
        reason=reason_of(services.settings, provider),
        tier=tier_name(services.network, provider.tier_id),
        stake_wei=stake_wei,
        reliability_bps=provider.reliability_bps,
        last_seen_at=provider.last_seen_at,
        registered_at=provider.created_at,
        attested_until=attested,
        disputed_at=provider.disputed_at,
    )


def _epoch_view(row: ProviderEpoch, penalty: DowntimePenalty | None) -> EpochView:
    return EpochView(
        epoch=row.epoch,
        uptime_bps=uptime_bps(row.up_minutes, row.counted_minutes),
        counted_minutes=row.counted_minutes,
        committed_minutes=row.committed_minutes,
        committed_up_minutes=row.committed_up_minutes,
        served_bytes=row.served_bytes,
        replays=row.replays,
        verified=row.verified,
        rejected=row.rejected,
        lost=row.lost,
        refused=row.refused,
        slashes=row.slashes,
        penalty=None if penalty is None else _penalty_view(penalty),
    )


def _penalty_view(penalty: DowntimePenalty) -> PenaltyView:
    return PenaltyView(
        evidence=penalty.evidence, evidence_cid=penalty.evidence_cid, amount_wei=penalty.amount_wei, tx=penalty.tx
    )


def _ask_view(network: NetworkParameters, ask: AskRow) -> AskView:
    return AskView(
        id=ask.id,
        provider=ask.provider,
        tier=str(tier_name(network, ask.tier_id)),
        gpus=ask.gpus,
        min_price_wei=ask.min_price_wei,
        valid_until=ask.valid_until,
        status=ask.status,
        placed_at=ask.created_at,
    )
