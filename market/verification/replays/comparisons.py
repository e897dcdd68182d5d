"""Cross-class checks: replays elsewhere if the unit's class has no live verifier.

The verifier commits to its end state and uploads it. Then the provider is asked for its claimed end state, and the
market compares both (:mod:`market.domain.verification.tolerance`). Close states pass the segment, and the unit records
that. Otherwise the segment waits for a verifier of its class: a comparison never fails a sample. Replays of comparisons
do not count in the sample's verdict.
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
from market.verification.replays.sampling import offer_reveal, reveal_by
from market.verification.replays.verifier_choice import (
    ReplayRequest,
    eligible_verifiers,
    has_open_request,
    pay_replay,
    request_replay,
)
from market.verification.samples import repository as samples_repository
from market.verification.samples.models import ClassDrift, Comparison, Replay, Sample
from market.verification.samples.transitions import transition_comparison, transition_replay, transition_sample
from training_gym.spec.errors import GymError

TOLERANCE = "tolerance"
"""Reason of a sample that passed without a match in its class."""

TOO_FAR, NOT_REVEALED, NOT_COMPARABLE = "beyond_tolerance", "claim_not_shown", "not_comparable"

_log = structlog.get_logger(__name__)


def request_cross_class_check(session: Session, settings: Settings, sample: Sample, unit: UnitSummary) -> None:
    """Request a replay in another class for a revealed sample without a result in its own.

    Conditions: no live verifier of the class, and the reveal deadline has passed, by which one could have returned.
    """
    assert sample.reveal_deadline_at is not None  # set when it was drawn
    if (
        _has_result(session, sample)
        or utc_now() < sample.reveal_deadline_at
        or eligible_verifiers(session, settings, unit)
    ):
        return
    comparison = samples_repository.lock_comparison_of(session, sample.id)
    if comparison is None:
        comparison = Comparison(sample_id=sample.id, unit_id=unit.id, segment=sample.segment)
        comparison.status = ComparisonStatus.ASKED
        session.add(comparison)
        session.flush()
    replays = samples_repository.lock_replays(session, comparison)
    if comparison.status == ComparisonStatus.ASKED and not has_open_request(replays):
        request = ReplayRequest(
            unit=unit,
            segment=sample.segment,
            state_cid=sample.state_cid,
            start_leaf=unit.leaves[sample.segment],
            replays=replays,
            of_the_other=[],
            comparison_id=comparison.id,
        )
        request_replay(session, settings, request)


def record_computed_state(session: Session, comparison: Comparison, state_cid: str) -> None:
    """Record the verifier's uploaded end state, which matches its commitment."""
    if comparison.status == ComparisonStatus.ASKED:
        comparison.computed_cid = state_cid
        transition_comparison(session, comparison, ComparisonEvent.COMPUTE)


def record_missing_result(session: Session, comparison: Comparison, replay: Replay) -> None:
    """Fail a comparison whose verifier diverged or started elsewhere than the trace."""
    transition_replay(session, replay, ReplayEvent.DISAGREE)
    if comparison.status == ComparisonStatus.ASKED:
        transition_comparison(session, comparison, ComparisonEvent.FAIL, reason=replay.end_leaf)


def request_claims(database: Database, settings: Settings) -> None:
    """Request the provider's claimed end of every segment with a computed one, until a deadline."""
    with database.transaction() as session:
        waiting = samples_repository.ids_with(session, Comparison, ComparisonStatus.COMPUTED)
    for comparison_id in waiting:
        with database.transaction() as session:
            comparison = samples_repository.lock_comparison(session, comparison_id)
            if comparison.status == ComparisonStatus.COMPUTED:
                _request_claim(session, settings, comparison)


def _request_claim(session: Session, settings: Settings, comparison: Comparison) -> None:
    unit = units.unit_facts(session, comparison.unit_id)
    if comparison.reveal_deadline_at is None:
        # The last segment ends in a replica state, which is as large as a boundary state.
        comparison.reveal_deadline_at = reveal_by(session, settings, unit, [comparison.segment + 1])
    if comparison.claimed_cid is not None:
        return
    if comparison.reveal_deadline_at <= utc_now():
        # No offence: the end was not sampled. The segment waits for a verifier of its class.
        _decide(session, comparison, ComparisonEvent.FAIL, NOT_REVEALED)
    elif comparison.reveal_lease_id is None:
        is_last = comparison.segment + 1 == unit.segments  # its end is in the replica state and the payload
        task = {
            "segment": 0 if is_last else comparison.segment + 1,
            "slot_state_cid": unit.slot_state_cid if is_last else None,
            "comparison_id": comparison.id,
        }
        comparison.reveal_lease_id = offer_reveal(session, unit, task, comparison.reveal_deadline_at)


def record_claim(session: Session, comparison_id: int, cid: str | None) -> None:
    """Record the provider's claimed end state, which matches its trace."""
    comparison = samples_repository.lock_comparison(session, comparison_id)
    if comparison.status == ComparisonStatus.COMPUTED:
        comparison.claimed_cid = cid


def reopen_claim(session: Session, comparison_id: int, lease_id: str) -> None:
    """Let the claim be requested again, until its deadline, after its lease expired or failed."""
    comparison = samples_repository.lock_comparison(session, comparison_id)
    if comparison.reveal_lease_id == lease_id:
        comparison.reveal_lease_id = None


def compare_states(database: Database, storage: Storage) -> None:
    """Compare pairs of end states, without an open session. Raises StorageUnavailable."""
    with database.transaction() as session:
        ready = samples_repository.comparisons_to_make(session)
    for comparison_id in ready:
        with database.transaction() as session:
            row = samples_repository.lock_comparison(session, comparison_id)
            sample = session.get_one(Sample, row.sample_id)  # locked with the comparison
            if has_open_request(samples_repository.lock_replays(session, sample)):
                continue  # a verifier of the class has returned, whose result is exact
            where, cids = (row.unit_id, row.segment), (row.computed_cid or "", row.claimed_cid or "")
        distance: tuple[float, float] | None = None
        try:
            distance = replay_inputs.claimed_end_distance(database, storage, *where, *cids)
        except StorageUnavailable:
            raise  # the states are intact: compare them once storage answers
        except (StorageError, GymError) as error:
            _log.warning("end_states_not_comparable", unit=where[0], segment=where[1], error=str(error))
        with database.transaction() as session:
            comparison = samples_repository.lock_comparison(session, comparison_id)
            if comparison.status == ComparisonStatus.COMPUTED:
                _compared(session, comparison, distance)


def _compared(session: Session, comparison: Comparison, distance: tuple[float, float] | None) -> None:
    if distance is None:
        _decide(session, comparison, ComparisonEvent.FAIL, NOT_COMPARABLE)
        return
    comparison.whole, comparison.widest = distance
    unit = units.unit_facts(session, comparison.unit_id)
    [replay] = _answered(session, comparison)
    drifts = samples_repository.drifts(session, unit.job_id, unit.environment_class, _class_of(replay))
    limit = tolerance(unit.spec["training_config"]["segment_steps"], drifts)
    if limit.passes(*distance):
        _decide(session, comparison, ComparisonEvent.PASS, None)
    else:
        _decide(session, comparison, ComparisonEvent.FAIL, TOO_FAR)


def _decide(session: Session, comparison: Comparison, event: ComparisonEvent, reason: str | None) -> None:
    """End a comparison; if it passes, so does its sample, unless its class gave a result."""
    sample = samples_repository.lock(session, Sample, comparison.sample_id)
    unit = units.unit_facts(session, comparison.unit_id)
    passes = event is ComparisonEvent.PASS
    for replay in _answered(session, comparison):
        transition_replay(session, replay, ReplayEvent.AGREE if passes else ReplayEvent.DISAGREE)
        if passes:
            pay_replay(session, replay, unit)
    transition_comparison(session, comparison, event, reason=reason)
    if sample.status == SampleStatus.PASSED:
        record_verdict(session, sample, unit, passed=True)
    is_open = sample.status == SampleStatus.REVEALED and unit.status == UnitStatus.CHECKING
    if passes and is_open and not _has_result(session, sample):
        transition_sample(session, sample, SampleEvent.PASS, reason=TOLERANCE)


def record_verdict(session: Session, sample: Sample, unit: UnitSummary, *, passed: bool) -> None:
    """Apply a final verdict to a failed comparison: record drift, or pay its verifier."""
    comparison = samples_repository.lock_comparison_of(session, sample.id)
    if comparison is None or comparison.status != ComparisonStatus.FAILED:
        return
    for replay in samples_repository.lock_replays(session, comparison):
        if replay.status == ReplayStatus.DISAGREED and not passed:
            pay_replay(session, replay, unit)
        elif replay.status == ReplayStatus.DISAGREED and comparison.whole is not None:
            session.add(
                ClassDrift(
                    job_id=unit.job_id,
                    provider_class=unit.environment_class,
                    verifier_class=_class_of(replay),
                    whole=comparison.whole,
                    widest=comparison.widest,
                )
            )


def _has_result(session: Session, sample: Sample) -> bool:
    return any(replay.end_leaf is not None for replay in samples_repository.lock_replays(session, sample))


def _answered(session: Session, comparison: Comparison) -> list[Replay]:
    replays = samples_repository.lock_replays(session, comparison)
    return [replay for replay in replays if replay.status == ReplayStatus.COMMITTED]


def _class_of(replay: Replay) -> str:
    assert replay.environment_class is not None  # set with the replay
    return replay.environment_class
