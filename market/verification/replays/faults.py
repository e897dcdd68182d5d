"""Faults of verifiers without a result, and their effect on scores.

A fault is set when its lease ends. It is recorded in the background after a test of storage: without storage no replay
is possible. A replay has at most one fault, also if its verifier is asked again.
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
from market.verification.samples.models import Canary, Comparison, Replay, Sample
from market.verification.samples.service import LeaseSummary
from market.verification.samples.transitions import transition_replay
from market.verification.windows.service import ADVANCE


def close_without_result(session: Session, lease: LeaseSummary, replay: Replay) -> None:
    """Abandon a replay that has ended without a result, and set its fault."""
    gave_up = lease.status == LeaseStatus.FAILED
    fault = fault_of(lease.reason, gave_up=gave_up, committed=replay.status == ReplayStatus.COMMITTED)
    reason = RESULT_WITHHELD if fault is Fault.WITHHELD else lease.reason
    transition_replay(session, replay, ReplayEvent.ABANDON, reason=reason)
    if fault is None or replay.fault is not None or expiry.was_busy(session, lease.id):
        return
    replay.fault, replay.fault_from, replay.fault_until = fault, lease.created_at, utc_now()
    enqueue_after_commit(session, ADVANCE)


def record_faults(database: Database, storage: Storage, *, storable: bool) -> None:
    """Record new faults in verifiers' scores, unless market or storage had an outage."""
    with database.transaction() as session:
        due = samples_repository.unrecorded_faults(session)
    for replay_id in due:
        with database.transaction() as session:
            subject, _ = samples_repository.lock_subject(session, replay_id)
            files = _start_files(session, subject)
        works = storable and _serves(storage, files)
        with database.transaction() as session:
            _record(session, samples_repository.lock(session, Replay, replay_id), works=works)


def _record(session: Session, replay: Replay, *, works: bool) -> None:
    since, until = replay.fault_from, replay.fault_until
    assert replay.fault is not None  # all three are set together
    assert since is not None
    assert until is not None
    replay.fault_until = None
    had_outage = outages.outage_time(session, since, until, [outages.STORAGE]) or providers.had_outage(
        session, since, until
    )
    if had_outage or not works:
        replay.fault = replay.fault_from = None
    else:
        reliability.record_fault(session, replay.verifier, Fault(replay.fault), until)


def _start_files(session: Session, subject: Sample | Canary | Comparison) -> list[str]:
    unit = units.unit_facts(session, subject.unit_id)
    if isinstance(subject, Comparison):
        subject = samples_repository.lock(session, Sample, subject.sample_id)
    state = subject.state_cid if subject.segment else unit.start_slot_state_cid
    return [cid for cid in (unit.start_checkpoint_cid, state) if cid is not None]


def _serves(storage: Storage, cids: list[str]) -> bool:
    try:
        for cid in cids:
            storage.stat(cid)
    except StorageError:
        return False
    return True
