"""Hardware benchmarks, which earn a tier and are repeated at random times.

The market's clock measures the speed, from the nonce to the commitment. The market selects the states to open after the
commitment, when none can change (``training_gym.hardware.challenge``).
"""

import secrets
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import ProviderEvent, ProviderStatus
from market.domain.network import Benchmark, NetworkParameters, Tier
from market.domain.nodes.placement import insufficient_key
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.db.session import Database
from market.platform.http.errors import UnknownTier
from market.platform.http.services import Services
from market.platform.storage import quota
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge, StorageUnavailable
from market.providers import lifecycle
from market.providers import repository as providers_repository
from market.providers import service as providers
from market.providers.errors import (
    AnswerNotFound,
    BenchmarkAnswered,
    BenchmarkAtWork,
    BenchmarkBusy,
    BenchmarkNotFound,
    BenchmarkOutOfTurn,
    BenchmarkPaused,
    HardwareInsufficient,
    ProviderJailed,
    VerifierNeedsNone,
)
from market.providers.models import BenchmarkRun, Provider
from market.providers.outages import service as outages
from market.providers.schemas import VerdictView
from training_gym.hardware.challenge import Challenge, ProofParameters, verify
from zoo_protocol.hashing import from_hex, to_hex

_CHECKS = threading.BoundedSemaphore(1)
"""One check at a time in a process: an answer of the largest tiers has 800 MB, and the check needs more."""

_log = structlog.get_logger(__name__)

IsAtWork = Callable[[Session, str], bool]
"""True if a node has a replica or a lease; if not, no job gets it before this transaction ends."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Look-up of nodes in jobs, injected: benchmarks cannot import the training features."""

    is_at_work: IsAtWork


def work_of(benchmark: Benchmark) -> ProofParameters:
    return from_row(ProofParameters, benchmark)


def seconds_of(benchmark: Benchmark) -> float:
    """Return the time limit of a tier's timed part."""
    work = work_of(benchmark)
    return work.flops / (benchmark.min_mflops * 10**6) + work.walk_bytes / (benchmark.min_walk_mbps * 10**6)


def start_benchmark(
    session: Session, network: NetworkParameters, address: str, tier_name: str, is_at_work: IsAtWork
) -> BenchmarkRun:
    """Create a challenge for a tier. The provider prepares its pool before the timed part.

    The provider is not placed until the verdict.

    Raises:
        UnknownTier, NotRegistered, VerifierNeedsNone, ProviderJailed: the provider cannot be benchmarked.
        HardwareInsufficient: the registered hardware is below the tier's.
        BenchmarkPaused: it failed a benchmark recently.
        BenchmarkAtWork: it is in a job.
    """
    try:
        tier = network.tier(tier_name)
    except KeyError:
        names = ", ".join(tier.name for tier in network.tiers)
        raise UnknownTier(f"no tier {tier_name!r}; expected one of {names}", field="tier") from None
    _check_may_benchmark(providers.require(session, address), tier)
    _check_no_failure(session, network, address)
    if is_at_work(session, address):
        raise BenchmarkAtWork(f"{address} has a replica or a lease")
    run = BenchmarkRun(
        id=str(uuid.uuid4()),
        provider=address,
        seed=to_hex(secrets.token_bytes(32)),
        work=asdict(work_of(tier.benchmark)),
        tier_id=tier.id,
        deadline_at=utc_now() + timedelta(seconds=tier.benchmark.ready_seconds),
    )
    session.add(run)
    session.flush()
    return run


def begin_work(session: Session, network: NetworkParameters, address: str, run_id: str) -> BenchmarkRun:
    """Set the nonce, which begins the timed part. Idempotent.

    Raises:
        BenchmarkNotFound, BenchmarkAnswered: there is no open benchmark.
        BenchmarkOutOfTurn: the pool took too long.
    """
    run = _open_run(session, run_id, address)
    now = utc_now()
    if run.started_at is None:
        if now > run.deadline_at:
            raise BenchmarkOutOfTurn(f"benchmark {run.id} missed its deadline to begin, {run.deadline_at:%H:%M:%S} UTC")
        run.nonce = to_hex(secrets.token_bytes(32))
        run.started_at = now
        run.deadline_at = now + timedelta(seconds=seconds_of(tier_of(network, run).benchmark))
    return run


def commit_work(
    session: Session, network: NetworkParameters, address: str, run_id: str, commitment: str
) -> BenchmarkRun:
    """Record the commitment, which ends the timed part, and select the steps to open.

    Raises:
        BenchmarkNotFound, BenchmarkAnswered: there is no open benchmark.
        BenchmarkOutOfTurn: the work has not begun, or another commitment was made.
        BenchmarkPaused: another benchmark failed since.
    """
    run = _open_run(session, run_id, address)
    if run.started_at is None or run.commitment not in (None, commitment):
        raise BenchmarkOutOfTurn(f"benchmark {run_id} has {'another commitment' if run.commitment else 'not begun'}")
    if run.committed_at is None:
        providers.require(session, address, lock=True)  # serialises a provider's commitments
        _check_no_failure(session, network, address)
        run.committed_at = utc_now()
        run.commitment = commitment
        run.secret = to_hex(secrets.token_bytes(32))
        microseconds = max(1, (run.committed_at - run.started_at) // timedelta(microseconds=1))
        run.flops_per_second = ProofParameters(**run.work).flops * 10**6 // microseconds
    return run


def is_in_time(run: BenchmarkRun) -> bool:
    return run.committed_at is not None and run.committed_at <= run.deadline_at


def answer_bytes(session: Session, address: str) -> int:
    """Return the bytes of the answer that the account recently had to upload, or 0."""
    run = providers_repository.benchmark_to_answer(session, address, utc_now() - providers_repository.ANSWERED_WITHIN)
    return 0 if run is None else ProofParameters(**run.work).answer_bytes


def finish_benchmark(services: Services, address: str, run_id: str, cid: str) -> VerdictView:
    """Check the answer to a challenge, an uploaded blob, and grant the tier if it is correct.

    The same answer again gets the same verdict.

    Raises:
        BenchmarkNotFound, BenchmarkAnswered: there is no open benchmark.
        BenchmarkOutOfTurn: there is no commitment yet.
        AnswerNotFound: the caller did not upload the answer, or storage lost it. The challenge stays open.
        BenchmarkBusy: another check runs; the time of the upload counts.
    """
    if not _CHECKS.acquire(blocking=False):
        raise BenchmarkBusy(f"benchmark {run_id} waits for the check of another one")
    try:
        return _finish(services, address, run_id, cid)
    finally:
        _CHECKS.release()


def _finish(services: Services, address: str, run_id: str, cid: str) -> VerdictView:
    database, storage, network = services.database, services.part(Storage), services.network
    with database.transaction() as session:
        run = providers_repository.lock_benchmark(session, run_id, address)
        if run is not None and run.answer_cid == cid:
            return _verdict(network, run)
        run = _open_run(session, run_id, address)
        if run.commitment is None or run.nonce is None or run.secret is None or run.committed_at is None:
            raise BenchmarkOutOfTurn(f"benchmark {run_id} has no commitment yet")
        arrived = quota.uploaded_at(session, address, cid)  # by the market's clock
        if arrived is None:
            raise AnswerNotFound(f"you have not uploaded {cid}", field="cid")
        challenge = Challenge(ProofParameters(**run.work), from_hex(run.seed), from_hex(run.nonce))
        committed, secret = from_hex(run.commitment), from_hex(run.secret)
    try:
        answer = storage.get(cid, max_bytes=challenge.work.answer_bytes)
    except BlobTooLarge:
        answer = b""  # a wrong answer
    except (BlobNotFound, BlobCorrupt) as error:
        raise AnswerNotFound(f"{cid}: {error}", field="cid") from error

    tier = tier_of(network, run)
    seconds = max(1e-6, (arrived - run.committed_at).total_seconds())
    reason = "passed"
    if not is_in_time(run):
        reason = "too_slow"
    elif not verify(challenge, committed, secret, answer):
        # Tested before lateness, which causes no pause. Otherwise a provider could answer late to avoid the pause.
        reason = "wrong_answer"
    elif seconds > tier.benchmark.answer_seconds:
        reason = "too_late"
    elif 8 * len(answer) < tier.benchmark.min_upload_mbps * 10**6 * seconds:
        reason = "link_too_slow"
    with database.transaction() as session:
        provider = providers.require(session, address, lock=True)
        run = _open_run(session, run_id, address)
        run.answered_at = arrived
        run.answer_cid = cid
        run.passed = reason == "passed"
        run.reason = reason
        if run.passed:
            _grant_tier(session, network, provider, tier, _mflops(run))
            quota.stop_charging(session, address, [cid])
    if run.passed:
        _unpin(storage, cid)
    return _verdict(network, run)


def _verdict(network: NetworkParameters, run: BenchmarkRun) -> VerdictView:
    return from_row(VerdictView, run, tier=tier_of(network, run).name, mflops=_mflops(run))


def _mflops(run: BenchmarkRun) -> int:
    return (run.flops_per_second or 0) // 10**6


def _unpin(storage: Storage, cid: str) -> None:
    """Unpin a correct answer. A wrong one stays pinned: it may be another needed file."""
    try:
        storage.unpin(cid)
    except StorageUnavailable as error:
        _log.warning("benchmark_answer_not_unpinned", cid=cid, error=str(error))


def tier_of(network: NetworkParameters, run: BenchmarkRun) -> Tier:
    return next(tier for tier in network.tiers if tier.id == run.tier_id)


def demote_overdue(database: Database, now: datetime) -> None:
    """Demote every provider past the deadline of its benchmark, each in its own transaction.

    Outages of the API extend the deadline.
    """
    with database.transaction() as session:
        overdue = providers_repository.overdue_rebenchmarks(session, _WITH_TIER, now)
    for address in overdue:
        with database.transaction() as session:
            provider = providers.require(session, address, lock=True)
            due, since = provider.rebenchmark_by, provider.rebenchmark_at
            if due is None or since is None or provider.status not in _WITH_TIER:
                continue
            if due + outages.outage_time(session, since, now, [outages.API]) < now:
                provider.rebenchmark_by = None
                lifecycle.advance(session, provider, ProviderEvent.DEMOTE, reason=providers.REBENCHMARK_MISSED)


def benchmark_deadline(
    session: Session, network: NetworkParameters, provider: Provider, now: datetime, is_at_work: IsAtWork
) -> datetime | None:
    """Return the deadline of a provider's next benchmark, or None; the first return sets it.

    No deadline is set while the provider is in a job, and a provider with a deadline is not placed. The caller has
    locked the provider's row, because a passed benchmark clears the deadline.
    """
    has_come = provider.rebenchmark_at is not None and provider.rebenchmark_at <= now
    is_due = has_come and provider.rebenchmark_by is None and provider.status in _WITH_TIER
    if is_due and not is_at_work(session, provider.address):
        provider.rebenchmark_by = now + timedelta(seconds=network.rebenchmark_within_seconds)
    return provider.rebenchmark_by


_WITH_TIER = (ProviderStatus.BENCHMARKED, ProviderStatus.ACTIVE)


def _check_may_benchmark(provider: Provider, tier: Tier) -> None:
    if provider.kind == "verifier":
        raise VerifierNeedsNone("a verifier has no benchmark")
    if provider.status == ProviderStatus.JAILED:
        raise ProviderJailed(f"{provider.address} is jailed")
    if key := insufficient_key(provider.hardware, tier):
        raise HardwareInsufficient(
            f"hardware.{key} is {provider.hardware[key]}; expected at least {getattr(tier, key)} for tier {tier.name}",
            field=f"hardware.{key}",
        )


def _check_no_failure(session: Session, network: NetworkParameters, address: str) -> None:
    """Enforce the pause after a failure; fast retries could guess which states are opened."""
    pause = timedelta(seconds=network.benchmark_pause_seconds)
    failed_at = providers_repository.last_failed_benchmark(session, address, utc_now() - pause)
    if failed_at is not None:
        raise BenchmarkPaused(
            f"{address} failed the benchmark that it committed to at {failed_at:%Y-%m-%d %H:%M} UTC",
            extra={"not_before": f"{failed_at + pause:%Y-%m-%dT%H:%M:%SZ}"},
        )


def _open_run(session: Session, run_id: str, address: str) -> BenchmarkRun:
    run = providers_repository.lock_benchmark(session, run_id, address)
    if run is None:
        raise BenchmarkNotFound(f"no benchmark {run_id}", field="benchmark_id")
    if run.answered_at is not None:
        raise BenchmarkAnswered(f"benchmark {run_id} was answered with {run.reason}", field="benchmark_id")
    return run


def _grant_tier(session: Session, network: NetworkParameters, provider: Provider, tier: Tier, mflops: int) -> None:
    if provider.status == ProviderStatus.JAILED:  # since the challenge was issued
        raise ProviderJailed(f"{provider.address} is jailed")
    if provider.tier_id != tier.id:
        providers_repository.close_open_ask(session, provider.address, "cancelled")  # it offered another tier
    provider.tier_id, provider.measured_mflops = tier.id, mflops
    # Exponential waiting times are memoryless: the last benchmark does not predict the next one.
    wait = secrets.SystemRandom().expovariate(1 / network.rebenchmark_mean_seconds)
    provider.rebenchmark_at, provider.rebenchmark_by = utc_now() + timedelta(seconds=wait), None
    if provider.status == ProviderStatus.DEMOTED:
        provider.forgiven_bps = provider.reliability_bps
    lifecycle.advance(session, provider, ProviderEvent.BENCHMARK_PASSED, reason="benchmark_passed")
    lifecycle.review_stake(session, network, provider)
