"""Late states of decided units: they count in the score, a third late day is slashed.

Call only while verification advances: one worker at a time may process a provider's days.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED, ProviderStatus, UnitStatus
from market.domain.nodes.uptime import epoch_of
from market.domain.verification import late_states
from market.domain.verification.late_states import BANDWIDTH_VIOLATION, LatenessOutcome
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers import service as providers
from market.providers.record import reliability
from market.training.units import service as units
from market.verification.decisions import repository
from market.verification.penalties import repository as penalties_repository
from market.verification.penalties.models import LatePenalty
from market.verification.penalties.service import record_penalty
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import LateState, Sample
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import canonical_json, to_hex


def record_late_states(database: Database, storage: Storage) -> None:
    """Count late states of decided units; slash providers late on too many days.

    Raises:
        StorageError: evidence could not be stored; the next call repeats the penalty.
    """
    with database.transaction() as session:
        for late in repository.unrecorded_late_states(session):
            _record(session, late)
    since = utc_now() - 2 * timedelta(days=late_states.WITHIN_DAYS)
    with database.transaction() as session:
        suspects = {late.provider for late in repository.counted_late_states(session, since)}
    for provider in sorted(suspects):
        _slash(database, storage, provider)


def _record(session: Session, late: LateState) -> None:
    unit = units.unit_facts(session, late.unit_id)
    if unit.status not in UNIT_DECIDED:
        return
    counted = repository.counted_late_states(session, late.due_at - timedelta(days=1), late.provider)
    late.booked = late_states.lateness_outcome(
        verified=unit.status == UnitStatus.VERIFIED,
        jailed=providers.require(session, late.provider).status == ProviderStatus.JAILED,
        same_day=any(_day(known) == _day(late) for known in counted),
    )
    session.flush()
    if late.booked == LatenessOutcome.COUNTED:
        reliability.record_lost_unit(session, late.provider, late.due_at)


def _day(late: LateState) -> int:
    return epoch_of(late.due_at.timestamp())


def _violation(session: Session, provider: str) -> list[LateState]:
    """Return the late states that form a violation, oldest first, since the last penalty."""
    before = penalties_repository.last_late_penalty_at(session, provider) or datetime.min.replace(tzinfo=UTC)
    by_day = {_day(late): late for late in repository.counted_late_states(session, before, provider)}
    return [by_day[day] for day in late_states.violation(by_day) or ()]


def _slash(database: Database, storage: Storage, provider: str) -> None:
    with database.transaction() as session:
        found = _violation(session, provider)
        document = _evidence(session, provider, found)
    if not found:
        return
    cid = storage.put_block(canonical_json(document)).cid
    with database.transaction() as session:
        if providers.require(session, provider, lock=True).status == ProviderStatus.JAILED:
            for late in found:  # jailed since then for a graver offence
                session.merge(late).booked = LatenessOutcome.PROVIDER_JAILED
            return
        last = units.unit_facts(session, found[-1].unit_id)
        evidence = to_hex(digest_of(cid))
        penalty = LatePenalty(provider=provider, job_id=last.job_id, evidence=evidence, evidence_cid=cid)
        record_penalty(session, last, penalty)


def _evidence(session: Session, provider: str, found: list[LateState]) -> dict[str, object]:
    """Return the late states with due and reveal times. Equal states give equal bytes."""
    return {
        "kind": "zoo-late/1",
        "offence": BANDWIDTH_VIOLATION,
        "provider": provider,
        "days": late_states.DAYS,
        "within_days": late_states.WITHIN_DAYS,
        "late": [_as_evidence(session, late) for late in found],
    }


def _as_evidence(session: Session, late: LateState) -> dict[str, object]:
    unit = units.unit_facts(session, late.unit_id)
    sample = samples_repository.lock(session, Sample, late.sample_id)
    return {
        "job_id": unit.job_id,
        "round": unit.round,
        "slot": unit.slot,
        "trace_root": unit.trace_root,
        "segment": sample.segment,
        "asked_at": sample.created_at.isoformat(),
        "due_at": late.due_at.isoformat(),
        "shown_at": None if late.shown_at is None else late.shown_at.isoformat(),
    }
