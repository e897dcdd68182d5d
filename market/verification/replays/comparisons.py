"""Replays in another environment class, where no verifier of the unit's own is there.

Such a verifier commits to the state that it ends in and uploads it; only then is the provider asked for the state that
it claims there, and the market compares the two (:mod:`market.domain.verification.tolerance`). If they are near, the
segment passes,
and the unit says so openly. If not, the segment waits for a verifier of its class, which alone can refute it: nothing
here fails a sample. Its rows are no replays of the sample, so the verdict never counts them.
"""

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.domain.verification.lifecycle import (
    ComparisonEvent,
    ComparisonStatus,
    ReplayEvent,
    ReplayStatus,
    SampleEvent,
    SampleStatus,
)
from market.domain.verification.tolerance import tolerance
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError, StorageUnavailable
from market.settings import Settings
from market.training.deliveries import replay_inputs
from market.training.units import service as units
from market.training.units.facts import UnitSummary
from market.verification.replays.drawing import offer_reveal, reveal_by
from market.verification.replays.verifier_choice import ReplayRequest, has_open_request, of_class, pay, request_replay
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import ClassDrift, Comparison, Replay, Sample
from market.verification.samples.transitions import transition_comparison, transition_replay, transition_sample
from training_gym.spec.errors import GymError

TOLERANCE = "tolerance"
"""Why a sample passed, if no replay in its class did it."""


TOO_FAR, NOT_SHOWN, NOT_COMPARABLE = "beyond_tolerance", "claim_not_shown", "not_comparable"


_log = structlog.get_logger(__name__)


def ask_another_class(session: Session, settings: Settings, sample: Sample, unit: UnitSummary) -> None:
    """Have a verifier of another class replay a revealed sample for which one of its own class could not be asked.

    Only where nobody of the class gave a result, none is live, and the time is over in which one could have come back:
    that which its provider had to show the start state.
    """
    assert sample.reveal_deadline_at is not None  # set when it was drawn
    if _has_result(session, sample) or utc_now() < sample.reveal_deadline_at or of_class(session, settings, unit):
        return
    comparison = samples_repository.lock_comparison_of(session, sample.id)
    if comparison is None:
        comparison = Comparison(sample_id=sample.id, unit_id=unit.id, segment=sample.segment)
        comparison.status = ComparisonStatus.ASKED
        session.add(comparison)
        session.flush()
    replays = samples_repository.lock_comparison_replays(session, comparison.id)
    if comparison.status == ComparisonStatus.ASKED and not has_open_request(replays):
        question = ReplayRequest(
            unit=unit,
            segment=sample.segment,
            state_cid=sample.state_cid,
            start_leaf=unit.leaves[sample.segment],
            replays=replays,
            of_the_other=[],
            comparison_id=comparison.id,
        )
        request_replay(session, settings, question)


def computed(session: Session, comparison: Comparison, state_cid: str) -> None:
    """The verifier opened its commitment, and the state that it uploaded is the one that it had committed to."""
    if comparison.status == ComparisonStatus.ASKED:
        comparison.computed_cid = state_cid
        transition_comparison(session, comparison, ComparisonEvent.COMPUTE)


def found_no_end(session: Session, comparison: Comparison, replay: Replay) -> None:
    """The verifier's training diverged, or did not start where the trace does: as good as being too far apart."""
    transition_replay(session, replay, ReplayEvent.DISAGREE)
    if comparison.status == ComparisonStatus.ASKED:
        transition_comparison(session, comparison, ComparisonEvent.FAIL, reason=replay.end_leaf)


def request_claims(database: Database, settings: Settings) -> None:
    """Ask the provider for the claimed end of every segment whose computed one is there, until a deadline."""
    with database.transaction() as session:
        waiting = samples_repository.comparisons_with(session, ComparisonStatus.COMPUTED)
    for comparison_id in waiting:
        with database.transaction() as session:
            comparison = samples_repository.lock_comparison(session, comparison_id)
            if comparison is not None and comparison.status == ComparisonStatus.COMPUTED:
                _request_claim(session, settings, comparison)


def _request_claim(session: Session, settings: Settings, comparison: Comparison) -> None:
    unit = units.unit_facts(session, comparison.unit_id)
    if comparison.reveal_deadline_at is None:
        # A replica state, which the last segment ends in, is as large as any other state: moments and what is unsent.
        comparison.reveal_deadline_at = reveal_by(session, settings, unit, [comparison.segment + 1])
    if comparison.claimed_cid is not None:
        return
    if comparison.reveal_deadline_at <= utc_now():
        # No offence: nobody was drawn to show an end. The segment waits for a verifier of its class.
        _decide(session, comparison, ComparisonEvent.FAIL, NOT_SHOWN)
    elif comparison.reveal_lease_id is None:
        is_last = comparison.segment + 1 == unit.segments  # its end is in the replica state and the payload
        task = {
            "segment": 0 if is_last else comparison.segment + 1,
            "slot_state_cid": unit.slot_state_cid if is_last else None,
            "comparison_id": comparison.id,
        }
        comparison.reveal_lease_id = offer_reveal(session, unit, task, comparison.reveal_deadline_at)


def claim_shown(session: Session, comparison_id: int, cid: str | None) -> None:
    """The provider showed the end that it claims, which was found to be what its trace binds."""
    comparison = samples_repository.lock_comparison(session, comparison_id)
    if comparison is not None and comparison.status == ComparisonStatus.COMPUTED:
        comparison.claimed_cid = cid


def claim_abandoned(session: Session, comparison_id: int, lease_id: str) -> None:
    """The provider went silent or failed; it is asked again until the deadline."""
    comparison = samples_repository.lock_comparison(session, comparison_id)
    if comparison is not None and comparison.reveal_lease_id == lease_id:
        comparison.reveal_lease_id = None


def compare_states(database: Database, storage: Storage) -> None:
    """Compare what is there of both sides. No session is open while states are read.

    Raises:
        StorageUnavailable: what was not compared yet waits for the next call.
    """
    with database.transaction() as session:
        ready = samples_repository.comparisons_to_make(session)
    for comparison_id in ready:
        with database.transaction() as session:
            row = samples_repository.lock_comparison(session, comparison_id)
            assert row is not None  # they are not deleted
            if has_open_request(samples_repository.lock_replays(session, row.sample_id)):
                continue  # one of its class has come back, and is at it: that says more, and is to be paid
            where, cids = (row.unit_id, row.segment), (row.computed_cid or "", row.claimed_cid or "")
        apart: tuple[float, float] | None = None
        try:
            apart = replay_inputs.claimed_end_distance(database, storage, *where, *cids)
        except StorageUnavailable:
            raise  # says nothing about the states: they are compared once storage answers
        except (StorageError, GymError) as error:
            _log.warning("two ends could not be compared", unit=where[0], segment=where[1], error=str(error))
        with database.transaction() as session:
            comparison = samples_repository.lock_comparison(session, comparison_id)
            if comparison is not None and comparison.status == ComparisonStatus.COMPUTED:
                _compared(session, comparison, apart)


def _compared(session: Session, comparison: Comparison, apart: tuple[float, float] | None) -> None:
    if apart is None:
        _decide(session, comparison, ComparisonEvent.FAIL, NOT_COMPARABLE)
        return
    comparison.whole, comparison.widest = apart
    unit = units.unit_facts(session, comparison.unit_id)
    [replay] = _answered(session, comparison)
    drifts = samples_repository.drifts(session, unit.job_id, unit.environment_class, _class_of(session, replay))
    limit = tolerance(unit.spec["training_config"]["segment_steps"], drifts)
    if limit.passes(*apart):
        _decide(session, comparison, ComparisonEvent.PASS, None)
    else:
        _decide(session, comparison, ComparisonEvent.FAIL, TOO_FAR)


def _decide(session: Session, comparison: Comparison, event: ComparisonEvent, reason: str | None) -> None:
    """End a comparison; if it passes, so does its sample, unless a verifier of the class gave a result meanwhile."""
    sample = samples_repository.lock_sample(session, comparison.sample_id)
    unit = units.unit_facts(session, comparison.unit_id)
    assert sample is not None  # samples are not deleted
    passes = event is ComparisonEvent.PASS
    for replay in _answered(session, comparison):
        transition_replay(session, replay, ReplayEvent.AGREE if passes else ReplayEvent.DISAGREE)
        if passes:
            pay(session, replay, unit)
    transition_comparison(session, comparison, event, reason=reason)
    if sample.status == SampleStatus.PASSED:
        note_verdict(session, sample, unit, passed=True)
    is_open = sample.status == SampleStatus.REVEALED and unit.status == UnitStatus.CHECKING
    if passes and is_open and not _has_result(session, sample):
        transition_sample(session, sample, SampleEvent.PASS, reason=TOLERANCE)


def note_verdict(session: Session, sample: Sample, unit: UnitSummary, *, passed: bool) -> None:
    """A sample is judged for good, by verifiers of the class or a committee. If it was too far apart before, that was
    drift, or a cheat found."""
    comparison = samples_repository.lock_comparison_of(session, sample.id)
    if comparison is None or comparison.status != ComparisonStatus.FAILED:
        return
    for replay in samples_repository.lock_comparison_replays(session, comparison.id):
        if replay.status == ReplayStatus.DISAGREED and not passed:
            pay(session, replay, unit)
        elif replay.status == ReplayStatus.DISAGREED and comparison.whole is not None:
            session.add(
                ClassDrift(
                    job_id=unit.job_id,
                    provider_class=unit.environment_class,
                    verifier_class=_class_of(session, replay),
                    whole=comparison.whole,
                    widest=comparison.widest,
                )
            )


def _has_result(session: Session, sample: Sample) -> bool:
    """Whether a verifier of the sample's class gave one."""
    return any(replay.end_leaf is not None for replay in samples_repository.lock_replays(session, sample.id))


def _answered(session: Session, comparison: Comparison) -> list[Replay]:
    replays = samples_repository.lock_comparison_replays(session, comparison.id)
    return [replay for replay in replays if replay.status == ReplayStatus.COMMITTED]


def _class_of(session: Session, replay: Replay) -> str:
    assert replay.environment_class is not None  # noted when it was asked
    return replay.environment_class
