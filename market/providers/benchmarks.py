"""The proof of work by which a provider earns a tier.

Speed is measured by the market's clock, from the challenge's issue to the arrival of its answer, so transfers count
against the node and nobody's word is taken.
"""

import secrets
import uuid
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from market.api.errors import UnknownTier
from market.db.base import utc_now
from market.db.session import Database
from market.domain.lifecycle import ProviderEvent, ProviderStatus
from market.domain.network import NetworkParameters, Tier
from market.providers import repository, service
from market.providers.errors import (
    AnswerNotFound,
    BenchmarkAnswered,
    BenchmarkNotFound,
    HardwareInsufficient,
    ProviderJailed,
    VerifierNeedsNone,
)
from market.providers.models import BenchmarkRun, Provider
from market.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge
from market.storage.service import Storage
from training_gym.benchmark import Challenge, verify
from zoo_protocol.hashing import from_hex


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a benchmark; ``reason`` is a stable code, ``mflops`` in 10**6 operations per second."""

    passed: bool
    reason: str
    tier: str
    mflops: int


def start_benchmark(session: Session, network: NetworkParameters, address: str, tier_name: str) -> BenchmarkRun:
    """A fresh challenge for a tier.

    Raises:
        UnknownTier, NotRegistered, VerifierNeedsNone, ProviderJailed: it cannot be had.
        HardwareInsufficient: what the provider registered is below the tier's table.
    """
    try:
        tier = network.tier(tier_name)
    except KeyError:
        names = ", ".join(tier.name for tier in network.tiers)
        raise UnknownTier(f"no tier {tier_name!r}; there are {names}", field="tier") from None
    _check_may_benchmark(service.require(session, address), tier)
    run = BenchmarkRun(
        id=str(uuid.uuid4()),
        provider=address,
        seed="0x" + secrets.token_hex(32),
        size=tier.benchmark.size,
        rounds=tier.benchmark.rounds,
        tier_id=tier.id,
        deadline_at=utc_now() + timedelta(seconds=tier.benchmark.deadline_seconds),
    )
    session.add(run)
    session.flush()
    return run


def _check_may_benchmark(provider: Provider, tier: Tier) -> None:
    if provider.kind == "verifier":
        raise VerifierNeedsNone("a verifier is not benchmarked")
    if provider.status == ProviderStatus.JAILED:
        raise ProviderJailed(f"{provider.address} is jailed")
    # The number of GPUs is not asked for: the speed that the challenge must show stands for it.
    needs = {"gpu_memory_gb": tier.gpu_memory_gb, "ram_gb": tier.ram_gb, "network_gbps": tier.network_gbps}
    for key, least in needs.items():
        if float(str(provider.hardware[key])) < least:
            raise HardwareInsufficient(
                f"tier {tier.name} needs {key} >= {least}, registered is {provider.hardware[key]}",
                field=f"hardware.{key}",
            )


def finish_benchmark(
    database: Database, storage: Storage, network: NetworkParameters, address: str, run_id: str, cid: str
) -> Verdict:
    """Take the answer to a challenge (a blob on storage), check it, and give the tier if it holds.

    Raises:
        BenchmarkNotFound, BenchmarkAnswered: there is nothing to answer.
        AnswerNotFound: storage does not have the answer, or not in full. The challenge stays open.
    """
    arrived = utc_now()
    with database.transaction() as session:
        run = _open_run(session, run_id, address)
    challenge = Challenge(from_hex(run.seed), run.size, run.rounds)
    try:
        answer = storage.get(cid, max_bytes=challenge.answer_size)
    except BlobTooLarge:
        answer = b""  # whatever it is, it is no product of this size
    except (BlobNotFound, BlobCorrupt) as error:
        raise AnswerNotFound(f"{cid}: {error}", field="cid") from error
    right = verify(challenge, answer, secrets.token_bytes(32))

    tier = next(tier for tier in network.tiers if tier.id == run.tier_id)
    microseconds = max(1, (arrived - run.created_at) // timedelta(microseconds=1))
    speed = challenge.flops * 10**6 // microseconds
    reason = "passed"
    if arrived > run.deadline_at:
        reason = "too_late"
    elif not right:
        reason = "wrong_answer"
    elif speed < tier.benchmark.min_mflops * 10**6:
        reason = "too_slow"
    with database.transaction() as session:
        provider = service.require(session, address, lock=True)
        run = _open_run(session, run_id, address)
        run.answered_at = arrived
        run.answer_cid = cid
        run.passed = reason == "passed"
        run.reason = reason
        run.flops_per_second = speed
        if run.passed:
            _give_tier(session, network, provider, tier)
    return Verdict(reason == "passed", reason, tier.name, speed // 10**6)


def _open_run(session: Session, run_id: str, address: str) -> BenchmarkRun:
    run = repository.lock_benchmark(session, run_id, address)
    if run is None:
        raise BenchmarkNotFound(f"no benchmark {run_id}", field="benchmark_id")
    if run.answered_at is not None:
        raise BenchmarkAnswered(f"benchmark {run_id} was answered with {run.reason}", field="benchmark_id")
    return run


def _give_tier(session: Session, network: NetworkParameters, provider: Provider, tier: Tier) -> None:
    if provider.status == ProviderStatus.JAILED:  # since the challenge was issued
        raise ProviderJailed(f"{provider.address} is jailed")
    if provider.tier_id != tier.id:
        repository.close_open_ask(session, provider.address, "cancelled")  # it offered another tier
    provider.tier_id = tier.id
    if provider.status == ProviderStatus.DEMOTED:
        provider.forgiven_bps = provider.reliability_bps
    service.advance(session, provider, ProviderEvent.BENCHMARK_PASSED, reason="benchmark_passed")
    service.review_stake(session, network, provider)
