"""Counts of a node's work per epoch, and reviews of its score: demotion and recovery."""

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.lifecycle import ProviderEvent, ProviderStatus, UnitEvent
from market.domain.network import NetworkParameters
from market.domain.nodes.reliability import DEMOTION_BPS, reliability_bps
from market.domain.nodes.uptime import epoch_of
from market.domain.verification.sampling import Fault
from market.platform.db.session import Database
from market.providers import lifecycle
from market.providers import repository as providers_repository
from market.providers import service as providers
from market.providers.models import Provider
from market.providers.record import repository

UNRELIABLE, RECOVERED = "unreliable", "reliability_recovered"


def record_unit(session: Session, address: str, event: UnitEvent, *, served_bytes: int, at: datetime) -> None:
    """Record the decision on a delivered unit. A verified one adds its upload to the rewards."""
    epoch = epoch_of(at.timestamp())
    if event is UnitEvent.PASS:
        repository.add(session, address, epoch, verified=1, served_bytes=served_bytes)
    elif event in (UnitEvent.REJECT, UnitEvent.STRIKE):
        repository.add(session, address, epoch, rejected=1)


def record_lost_unit(session: Session, address: str, at: datetime) -> None:
    """Record an undelivered unit or a state that was revealed late."""
    repository.add(session, address, epoch_of(at.timestamp()), lost=1)


def record_fault(session: Session, address: str, fault: Fault, at: datetime) -> None:
    """Record a replay without a result."""
    column = {Fault.REFUSED: "refused", Fault.SILENT: "lost", Fault.WITHHELD: "rejected"}[fault]
    repository.add(session, address, epoch_of(at.timestamp()), **{column: 1})


def record_served_bytes(session: Session, address: str, size: int, at: datetime) -> None:
    """Record ``size`` bytes that the node proved to have and served."""
    repository.add(session, address, epoch_of(at.timestamp()), served_bytes=size)


def record_replay(session: Session, address: str, replayed_wei: int, at: datetime) -> None:
    """Record a replay that agreed with the decision, at the segment's gross price."""
    repository.add(session, address, epoch_of(at.timestamp()), replays=1, replayed_wei=replayed_wei)


def record_wrong_evaluation(session: Session, address: str, at: datetime) -> None:
    """Record an evaluation that differs from the agreed one."""
    repository.add(session, address, epoch_of(at.timestamp()), rejected=1)


def review(database: Database, network: NetworkParameters, now: datetime) -> None:
    """Update every score with new evidence, each in its own transaction."""
    with database.advisory_lock("providers.review") as alone:
        if not alone:
            return
        with database.transaction() as session:
            due = repository.unreviewed(session)
        for address in due:
            with database.transaction() as session:
                _review(session, network, address, now)


def _review(session: Session, network: NetworkParameters, address: str, now: datetime) -> None:
    """Set the score; below the threshold demote until it recovers or passes a benchmark."""
    # A benchmark forgives the current score: only a lower one demotes the provider again. A low score does not demote a
    # verifier; it only lowers its probability of selection. Its demotion is a suspension.
    provider = providers_repository.lock_provider(session, address)
    score = reliability_bps(repository.begin_review(session, address, epoch_of(now.timestamp())))
    if provider is None:
        return
    provider.reliability_bps = score
    is_low = score < DEMOTION_BPS
    if not is_low:
        provider.forgiven_bps = None
    if is_low and provider.status in (ProviderStatus.BENCHMARKED, ProviderStatus.ACTIVE):
        if provider.kind == "provider" and (provider.forgiven_bps is None or score < provider.forgiven_bps):
            lifecycle.advance(session, provider, ProviderEvent.DEMOTE, reason=UNRELIABLE)
    elif not is_low and provider.status == ProviderStatus.DEMOTED and _may_recover(provider, network, now):
        lifecycle.advance(session, provider, ProviderEvent.RECOVER, reason=RECOVERED)
        lifecycle.review_stake(session, network, provider)


def _may_recover(provider: Provider, network: NetworkParameters, now: datetime) -> bool:
    """Return False during a suspension, and after a missed benchmark until one passes."""
    suspension = timedelta(seconds=network.suspension_seconds)
    is_suspended = provider.warned_at is not None and now < provider.warned_at + suspension
    return not is_suspended and provider.reason != providers.REBENCHMARK_MISSED
