"""Queries over the data of jobs that ended long ago."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from market.domain.lifecycle import UnitStatus
from market.jobs.models import Job
from market.jobs.repository import TERMINAL_STATUSES
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint, Pin, StatePin
from market.training.leases.models import Lease
from market.training.units.models import Unit


def ended_before(session: Session, before: datetime, unmatched_before: datetime, limit: int) -> Sequence[Job]:
    """Return jobs that ended before then and are not purged, oldest first.

    Args:
        unmatched_before: for jobs without nodes whose deposit is refunded.
    """
    ended_at = func.coalesce(Job.settled_at, Job.created_at)  # a rejected job has no settlement
    is_due = or_(ended_at < before, Job.matched_at.is_(None) & (Job.settled_at < unmatched_before))
    query = select(Job).where(Job.released_at.is_(None), Job.status.in_(TERMINAL_STATUSES), is_due)
    return session.scalars(query.order_by(ended_at).limit(limit)).all()


def unneeded_states(session: Session, job_id: str) -> set[str]:
    """Return the CIDs of a job's replica states in storage that are not evidence."""
    query = select(Unit.slot_state_cid).where(Unit.job_id == job_id, Unit.slot_state_public, ~_is_evidence())
    return {cid for cid in session.scalars(query) if cid is not None}


def evaluated_models(session: Session, job_id: str) -> set[str]:
    """Return the checkpoint CIDs that verifiers were asked to evaluate."""
    query = select(Lease.task["checkpoint_cid"].astext).where(Lease.job_id == job_id, Lease.kind == "evaluate")
    return set(session.scalars(query))


def _is_evidence() -> ColumnElement[bool]:
    """Match replica states that a rejected unit ends in or started from."""
    after = aliased(Unit)
    return exists().where(
        after.job_id == Unit.job_id,
        after.status == UnitStatus.REJECTED,
        or_(after.id == Unit.id, after.start_slot_state_cid == Unit.slot_state_cid),
    )


def mark_files_released(session: Session, job_id: str, files: Collection[str]) -> None:
    """Record that storage dropped checkpoint files, and replica states except evidence."""
    for checkpoint in checkpoints_repository.checkpoints(session, job_id):
        checkpoint.file_cids = [cid for cid in checkpoint.file_cids if cid not in files]
    states = update(Unit).where(Unit.job_id == job_id, Unit.slot_state_public, ~_is_evidence())
    session.execute(states.values(slot_state_public=False).execution_options(synchronize_session=False))


def delete_leases(session: Session, job_id: str, limit: int) -> int:
    """Delete up to ``limit`` leases of a job; return their number."""
    some = select(Lease.id).where(Lease.job_id == job_id).limit(limit)
    return len(session.scalars(delete(Lease).where(Lease.id.in_(some)).returning(Lease.id)).all())


def mark_released(session: Session, job_id: str, now: datetime) -> None:
    """Mark the job as purged and delete its pins; it cannot be disputed any more."""
    checkpoints = select(Checkpoint.id).where(Checkpoint.job_id == job_id)
    session.execute(delete(Pin).where(Pin.checkpoint_id.in_(checkpoints)))
    units = select(Unit.id).where(Unit.job_id == job_id)
    session.execute(delete(StatePin).where(StatePin.unit_id.in_(units)))
    session.execute(update(Job).where(Job.id == job_id).values(released_at=now))
