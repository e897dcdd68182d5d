"""Reveals of start states: in time, late, or withheld.

:mod:`market.verification.decisions.late_states` applies the penalty for lateness once the unit is decided. Outages of
the market or of its storage do not count towards a deadline.
"""

from datetime import datetime, timedelta

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import NODE_STOPPING, LeaseStatus
from market.domain.verification.late_states import LATE_DATA, offence_for_missing_state
from market.domain.verification.lifecycle import SampleEvent, SampleStatus
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.events.service import emit
from market.providers import service as providers
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.replays import comparisons
from market.verification.replays.sampling import request_state
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import LateState, Sample
from market.verification.samples.service import LeaseSummary
from market.verification.samples.transitions import transition_sample
from market.verification.windows.service import ADVANCE

_log = structlog.get_logger(__name__)


def request_states(database: Database, *, storable: bool) -> None:
    """Offer a lease for each sampled state without one; fail samples past their deadline.

    While storage accepts no content (not ``storable``), every state gets its full time from now on.
    """
    with database.transaction() as session:
        drawn = samples_repository.ids_with(session, Sample, SampleStatus.DRAWN)
    for sample_id in drawn:
        with database.transaction() as session:
            sample = samples_repository.lock(session, Sample, sample_id)
            if sample.status == SampleStatus.DRAWN:
                _request_state(session, sample, storable=storable)


def _request_state(session: Session, sample: Sample, *, storable: bool) -> None:
    unit = units.unit_facts(session, sample.unit_id)
    if not storable:
        _reset_deadline(sample, is_late=samples_repository.late_state(session, sample.id) is not None)
    is_late = _record_if_late(session, sample, unit) is not None
    _, _, until = _limits(sample)
    if is_late and utc_now() >= until and not _extend_after_outage(session, sample, until):
        transition_sample(session, sample, SampleEvent.FAIL, reason=offence_for_missing_state(sample.refusal))
    elif sample.reveal_lease_id is None:
        request_state(session, unit, sample)


def _record_if_late(session: Session, sample: Sample, unit: UnitSummary) -> LateState | None:
    """Return the record of a late state, created at the first call after its deadline."""
    late = samples_repository.late_state(session, sample.id)
    _, due_at, _ = _limits(sample)
    if late is not None or utc_now() < due_at or _extend_after_outage(session, sample, due_at):
        return late
    late = LateState(sample_id=sample.id, unit_id=unit.id, provider=unit.provider, due_at=due_at)
    session.add(late)
    session.flush()
    _emit_late(session, unit, sample, late)
    return late


def _extend_after_outage(session: Session, sample: Sample, limit: datetime) -> bool:
    """Reset a passed ``limit``; return True if the market had an outage."""
    requested_at, due_at, until = _limits(sample)
    is_late = limit == until
    if not providers.had_outage(session, due_at if is_late else requested_at, utc_now()):
        return False
    _log.warning("reveal_deadline_extended", unit=sample.unit_id, segment=sample.segment)
    _reset_deadline(sample, is_late=is_late)
    return True


def _reset_deadline(sample: Sample, *, is_late: bool) -> None:
    """Give a state its full time from now on, or all of it after the deadline if it is late."""
    requested_at, due_at, until = _limits(sample)
    delay = max(utc_now() - (due_at if is_late else requested_at), timedelta(0))
    sample.reveal_requested_at, sample.reveal_deadline_at = requested_at + delay, due_at + delay
    sample.reveal_until_at = until + delay


def _limits(sample: Sample) -> tuple[datetime, datetime, datetime]:
    """Return the time of the request, the deadline and the final deadline."""
    assert sample.reveal_requested_at is not None  # all three are set with the sample
    assert sample.reveal_deadline_at is not None
    assert sample.reveal_until_at is not None
    return sample.reveal_requested_at, sample.reveal_deadline_at, sample.reveal_until_at


def _emit_late(session: Session, unit: UnitSummary, sample: Sample, late: LateState) -> None:
    data: dict[str, object] = {
        "provider": unit.provider,
        "round": unit.round,
        "slot": unit.slot,
        "segment": sample.segment,
        "reason": LATE_DATA,
        "due_at": late.due_at.isoformat(),
    }
    if late.shown_at is not None:
        data["shown_at"] = late.shown_at.isoformat()
    emit(session, unit.job_id, "late", data)


def state_revealed(session: Session, lease: LeaseSummary, state_cid: str | None) -> None:
    """Record a revealed state, which matches the unit's trace."""
    if (comparison_id := lease.task.get("comparison_id")) is not None:
        comparisons.record_claim(session, comparison_id, state_cid or lease.task["slot_state_cid"])
        enqueue_after_commit(session, ADVANCE)
        return
    sample = samples_repository.lock_sample_of(session, lease.unit_id, lease.task["segment"])
    if sample is None or sample.status != SampleStatus.DRAWN:
        return
    unit = units.unit_facts(session, sample.unit_id)
    late = _record_if_late(session, sample, unit)
    if late is not None:
        late.shown_at = utc_now()
        _emit_late(session, unit, sample, late)
    sample.state_cid = state_cid
    transition_sample(session, sample, SampleEvent.REVEAL)
    enqueue_after_commit(session, ADVANCE)


def reveal_abandoned(session: Session, lease: LeaseSummary) -> None:
    """Let the next sweep request the state again, until its final deadline.

    Only refusals are recorded: the last one is the reason of a state that is never revealed.
    """
    if (comparison_id := lease.task.get("comparison_id")) is not None:
        comparisons.reopen_claim(session, comparison_id, lease.id)
        return
    sample = samples_repository.lock_sample_of(session, lease.unit_id, lease.task["segment"])
    if sample is not None and sample.reveal_lease_id == lease.id:
        sample.reveal_lease_id = None
        if lease.status == LeaseStatus.FAILED:
            sample.refusal = None if lease.reason == NODE_STOPPING else lease.reason
