"""Closing a round: join what was delivered into the next checkpoint, and advance the job.

Safe to run again at any point: the files are a pure function of what was delivered, and the change is applied only
while the job is still in the round that was loaded.
"""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.db.base import utc_now
from market.db.session import Database, wake_after_commit
from market.domain.lifecycle import JobEvent, JobStatus, LeaseEvent
from market.events.service import emit
from market.jobs import repository
from market.jobs.checkpoints import StoredCheckpoint, load_outer, load_parameters, record_checkpoint, store_checkpoint
from market.jobs.dispatch import round_state
from market.jobs.leases import abandon, stop_training
from market.jobs.models import Job
from market.jobs.moves import move_job
from market.settings import Settings
from market.storage.service import Storage
from training_gym.aggregation import Verdict
from training_gym.aggregation import aggregate as join
from training_gym.compression.wire import payload_size
from training_gym.config import TrainingSpec
from training_gym.outer import save_outer_state


@dataclass(frozen=True, slots=True)
class _Delivered:
    unit_id: int
    payload_cid: str
    error_feedback_cid: str


@dataclass(frozen=True, slots=True)
class _Round:
    """A round that can be closed: what was delivered by slot, and what each slot's error feedback was before."""

    number: int
    spec: TrainingSpec
    checkpoint_cid: str
    delivered: dict[int, _Delivered]
    error_feedback: dict[int, str]


def aggregate(database: Database, settings: Settings, storage: Storage, job_id: str) -> None:
    """Close the job's current round if it is due; otherwise, or if another worker is at it, do nothing.

    Raises:
        StorageError: storage failed; nothing was applied, so it can be tried again.
    """
    with database.exclusive(f"aggregate:{job_id}") as alone:
        round_ = _load(database, settings, job_id) if alone else None
        if round_ is None:
            return
        stored, verdicts = _join(storage, job_id, round_)
        with database.transaction() as session:
            _apply(session, job_id, round_, stored, verdicts)


def _load(database: Database, settings: Settings, job_id: str) -> _Round | None:
    with database.transaction() as session:
        job = repository.job(session, job_id)
        if job is None or job.status != JobStatus.RUNNING:
            return None
        checkpoint = repository.checkpoint(session, job_id, job.current_round)
        units = repository.units_of_round(session, job_id, job.current_round)
        if checkpoint is None or not round_state(session, job, units, settings).can_close(utc_now()):
            return None
        return _Round(
            number=job.current_round,
            spec=TrainingSpec.from_dict(job.spec),
            checkpoint_cid=checkpoint.cid,
            delivered={
                unit.slot: _Delivered(unit.id, unit.payload_cid or "", unit.error_feedback_cid or "")
                for unit in units
                if unit.status in repository.DELIVERED_UNIT
            },
            error_feedback={
                slot.slot: slot.error_feedback_cid
                for slot in repository.slots(session, job_id)
                if slot.error_feedback_cid is not None
            },
        )


def _join(storage: Storage, job_id: str, round_: _Round) -> tuple[StoredCheckpoint, dict[int, Verdict]]:
    """The next checkpoint, stored, and which slots entered it. A slot left out keeps its earlier error feedback."""
    limit = payload_size(round_.spec)
    payloads = {slot: storage.get(unit.payload_cid, max_bytes=limit) for slot, unit in round_.delivered.items()}
    parameters = load_parameters(storage, round_.spec, round_.checkpoint_cid)
    state = load_outer(storage, round_.spec, round_.checkpoint_cid)
    joined = join(round_.spec, parameters, payloads, outer_state=state)
    included = {slot for slot, verdict in joined.verdicts.items() if verdict.included}
    stored = store_checkpoint(
        storage,
        round_.spec,
        job_id=job_id,
        round_=round_.number + 1,
        parent=round_.checkpoint_cid,
        parameters=joined.parameters,
        outer_state=save_outer_state(round_.spec, joined.outer_state),
        update=joined.update,
        error_feedback=round_.error_feedback
        | {slot: unit.error_feedback_cid for slot, unit in round_.delivered.items() if slot in included},
    )
    return stored, joined.verdicts


def _apply(
    session: Session, job_id: str, round_: _Round, stored: StoredCheckpoint, verdicts: dict[int, Verdict]
) -> None:
    job = repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.RUNNING or job.current_round != round_.number:
        return
    units = {unit.id: unit for unit in repository.units_of_round(session, job_id, round_.number)}
    if any(units[item.unit_id].status not in repository.DELIVERED_UNIT for item in round_.delivered.values()):
        wake_after_commit(session, "jobs.dispatch", job_id)  # one was rejected meanwhile; its part must not stay in
        return
    slots = {slot.slot: slot for slot in repository.slots(session, job_id)}
    joined = {item.unit_id: verdicts[slot] for slot, item in round_.delivered.items()}
    for unit in units.values():
        if unit.id in joined:
            unit.included = joined[unit.id].included
            unit.exclusion_reason = None if unit.included else joined[unit.id].code
            if unit.included:
                slots[unit.slot].error_feedback_cid = unit.error_feedback_cid
        elif unit.status in repository.DELIVERED_UNIT:
            unit.included, unit.exclusion_reason = False, "late"
        elif unit.status in repository.OPEN_UNIT:
            _close_straggler(session, job_id, unit.id)
    record_checkpoint(session, stored)
    _advance(session, job, stored, included=sum(verdict.included for verdict in verdicts.values()))


def _close_straggler(session: Session, job_id: str, unit_id: int) -> None:
    for lease_id in repository.open_leases(session, job_id, unit_id=unit_id):
        locked = repository.lock_lease(session, lease_id)
        if locked and locked[2].status in repository.OPEN_LEASE:
            abandon(session, *locked, LeaseEvent.EXPIRE, "round_closed")


def _advance(session: Session, job: Job, stored: StoredCheckpoint, included: int) -> None:
    job.current_round += 1
    now = utc_now()
    loss = stored.manifest.validation_loss
    emit(
        session,
        job.id,
        "round",
        {"round": job.current_round, "rounds": job.rounds, "validation_loss": loss, "included": included},
    )
    if job.current_round < job.rounds:
        job.round_started_at = now
    else:
        job.trained_at = now
        move_job(session, job, JobEvent.ROUNDS_DONE)
        stop_training(session, job, "training_over")
    wake_after_commit(session, "jobs.dispatch", job.id)
