"""Samples: the provider serves the state in which a drawn segment starts, in time, late, or not at all.

Which of these it was is decided here; what being late costs, once the unit is decided, in
:mod:`market.verification.judgement.late_states`. Time in which the market could not be reached, or storage took
nothing, counts
towards neither limit.
"""

from datetime import datetime

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
from market.verification.replays.drawing import ask_for_state
from market.verification.samples import repository as samples_repository
from market.verification.samples.lease_facts import LeaseSummary
from market.verification.samples.models import LateState, Sample
from market.verification.samples.transitions import transition_sample
from market.verification.windows.service import ADVANCE

_log = structlog.get_logger(__name__)


def request_states(database: Database, *, storable: bool) -> None:
    """Offer a lease for every drawn state that is not on offer; after its last limit the state is withheld, or refused.

    Args:
        storable: whether storage takes what it is given. Otherwise each state has all its time from now on.
    """
    with database.transaction() as session:
        drawn = samples_repository.samples_with(session, SampleStatus.DRAWN)
    for sample_id in drawn:
        with database.transaction() as session:
            sample = samples_repository.lock_sample(session, sample_id)
            if sample is not None and sample.status == SampleStatus.DRAWN:
                _request_state(session, sample, storable=storable)


def _request_state(session: Session, sample: Sample, *, storable: bool) -> None:
    unit = units.unit_facts(session, sample.unit_id)
    if not storable:
        _reset_deadline(sample, is_late=samples_repository.late_state(session, sample.id) is not None)
    is_late = _note_if_late(session, sample, unit) is not None
    _, until = _limits(sample)
    if is_late and utc_now() >= until and not _was_out_of_reach(session, sample, until):
        transition_sample(session, sample, SampleEvent.FAIL, reason=offence_for_missing_state(sample.refusal))
    elif sample.reveal_lease_id is None:
        ask_for_state(session, unit, sample)


def _note_if_late(session: Session, sample: Sample, unit: UnitSummary) -> LateState | None:
    """The row of a state that is late, which is noted and told to the job's subscribers when that is first seen."""
    late = samples_repository.late_state(session, sample.id)
    due_at, _ = _limits(sample)
    if late is not None or utc_now() < due_at or _was_out_of_reach(session, sample, due_at):
        return late
    late = LateState(sample_id=sample.id, unit_id=unit.id, provider=unit.provider, due_at=due_at)
    session.add(late)
    session.flush()
    _tell(session, unit, sample, late)
    return late


def _was_out_of_reach(session: Session, sample: Sample, limit: datetime) -> bool:
    """Whether the market heard of nobody in some minute before a ``limit`` that is over, since the state was asked for,
    or was due. Then its provider has that time once more."""
    due_at, until = _limits(sample)
    if not providers.was_silent(session, limit - (until - due_at), utc_now()):
        return False
    _log.warning("a state has its time anew: the market was down", unit=sample.unit_id, segment=sample.segment)
    _reset_deadline(sample, is_late=limit == until)
    return True


def _reset_deadline(sample: Sample, *, is_late: bool) -> None:
    """All of its time from now on, or all that is left to who is late, unless it has longer."""
    due_at, until = _limits(sample)
    time = until - due_at
    sample.reveal_until_at = max(until, utc_now() + (time if is_late else 2 * time))
    sample.reveal_deadline_at = sample.reveal_until_at - time


def _limits(sample: Sample) -> tuple[datetime, datetime]:
    """When the state is due, and until when it is taken: as long again."""
    assert sample.reveal_deadline_at is not None  # both were set when it was drawn
    assert sample.reveal_until_at is not None
    return sample.reveal_deadline_at, sample.reveal_until_at


def _tell(session: Session, unit: UnitSummary, sample: Sample, late: LateState) -> None:
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
    """The provider served what a replay starts from, which was found to be what its trace commits to."""
    if (comparison_id := lease.task.get("comparison_id")) is not None:
        comparisons.claim_shown(session, comparison_id, state_cid or lease.task["slot_state_cid"])
        enqueue_after_commit(session, ADVANCE)
        return
    sample = samples_repository.lock_sample_of(session, lease.unit_id, lease.task["segment"])
    if sample is None or sample.status != SampleStatus.DRAWN:
        return
    unit = units.unit_facts(session, sample.unit_id)
    late = _note_if_late(session, sample, unit)
    if late is not None:
        late.shown_at = utc_now()
        _tell(session, unit, sample, late)
    sample.state_cid = state_cid
    transition_sample(session, sample, SampleEvent.REVEAL)
    enqueue_after_commit(session, ADVANCE)


def reveal_abandoned(session: Session, lease: LeaseSummary) -> None:
    """The provider went silent or failed; it is asked again by the next sweep, until the last limit.

    Its word counts, not its silence: what it said last is why a state that is never shown is missing.
    """
    if (comparison_id := lease.task.get("comparison_id")) is not None:
        comparisons.claim_abandoned(session, comparison_id, lease.id)
        return
    sample = samples_repository.lock_sample_of(session, lease.unit_id, lease.task["segment"])
    if sample is not None and sample.reveal_lease_id == lease.id:
        sample.reveal_lease_id = None
        if lease.status == LeaseStatus.FAILED:
            sample.refusal = None if lease.reason == NODE_STOPPING else lease.reason
