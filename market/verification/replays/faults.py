"""Verifiers that gave no result: what they are to blame for, and when it counts in their scores.

A fault is noted when its lease ends and booked in the background, where storage can be looked at: while that takes or
gives nothing, nobody can replay. Once for each replay; a verifier that is asked again about it pays nothing more.
"""

from sqlalchemy.orm import Session

from market.domain.lifecycle import LeaseStatus
from market.domain.verification.lifecycle import ReplayEvent, ReplayStatus
from market.domain.verification.sampling import RESULT_WITHHELD, Fault, fault_of
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError
from market.providers import service as providers
from market.providers.outages import service as outages
from market.providers.record import reliability
from market.training.leases import expiry
from market.training.units import service as units
from market.verification.samples import repository as samples_repository
from market.verification.samples.lease_facts import LeaseSummary
from market.verification.samples.models import Canary, Comparison, Replay, Sample
from market.verification.samples.transitions import transition_replay
from market.verification.windows.service import ADVANCE


def close_without_result(session: Session, lease: LeaseSummary, replay: Replay) -> None:
    """A replay has ended without a result; the lease says why, unless its result was committed to."""
    gave_up = lease.status == LeaseStatus.FAILED
    fault = fault_of(lease.reason, gave_up=gave_up, committed=replay.status == ReplayStatus.COMMITTED)
    reason = RESULT_WITHHELD if fault is Fault.WITHHELD else lease.reason
    transition_replay(session, replay, ReplayEvent.ABANDON, reason=reason)
    if fault is None or replay.fault is not None or expiry.was_busy(session, lease.id):
        return
    replay.fault, replay.fault_from, replay.fault_until = fault, lease.created_at, utc_now()
    enqueue_after_commit(session, ADVANCE)


def record_faults(database: Database, storage: Storage, *, storable: bool) -> None:
    """Count every new fault in its verifier's score, unless the market or its storage was not there meanwhile.

    Args:
        storable: whether storage takes what it is given.
    """
    with database.transaction() as session:
        due = samples_repository.faults_to_book(session)
    for replay_id in due:
        with database.transaction() as session:
            posed = samples_repository.lock_posed(session, replay_id)
            files = _files(session, posed)
        works = storable and _gives(storage, files)
        with database.transaction() as session:
            replay = samples_repository.lock_replay(session, replay_id)
            assert replay is not None  # replays are not deleted
            _book(session, replay, works=works)


def _files(session: Session, posed: Sample | Canary | Comparison) -> list[str]:
    """What a replay of it starts from."""
    unit = units.unit_facts(session, posed.unit_id)
    if isinstance(posed, Comparison):
        sample = samples_repository.lock_sample(session, posed.sample_id)
        assert sample is not None  # samples are not deleted
        posed = sample
    state = posed.state_cid if posed.segment else unit.start_slot_state_cid
    return [cid for cid in (unit.start_checkpoint_cid, state) if cid is not None]


def _gives(storage: Storage, cids: list[str]) -> bool:
    try:
        for cid in cids:
            storage.stat(cid)
    except StorageError:
        return False
    return True


def _book(session: Session, replay: Replay, *, works: bool) -> None:
    since, until = replay.fault_from, replay.fault_until
    assert replay.fault is not None  # all three are noted together
    assert since is not None
    assert until is not None
    replay.fault_until = None
    was_away = outages.time_away(session, since, until, [outages.STORAGE]) or providers.was_silent(
        session, since, until
    )
    if was_away or not works:
        replay.fault = replay.fault_from = None
    else:
        reliability.note_fault(session, replay.verifier, Fault(replay.fault), until)
