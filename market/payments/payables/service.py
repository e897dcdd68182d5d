"""Queries and changes of jobs and units that a settlement can pay, and of their batches.

Every function works in the caller's transaction. Rounds are paid in order. A unit is payable once its round is
closed and all units up to that round are decided or in dispute. A unit that wins its dispute is paid later.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.orm import Session

from market.accounts import spending
from market.domain.lifecycle import UNIT_DECIDED, JobEvent, JobStatus, UnitEvent, UnitStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.training.commitments.models import Acknowledgement
from market.training.units import repository as units_repository
from market.training.units.facts import UnitSummary, facts
from market.training.units.models import Unit
from market.training.units.transitions import transition_unit

_ENDED_EARLY = (JobStatus.CANCELLED, JobStatus.EXPIRED, JobStatus.FAILED, JobStatus.DISPUTED)
_UNPAID = (Unit.status == UnitStatus.VERIFIED, Unit.settlement_id.is_(None))


class AlreadySettled(Exception):
    """A unit for a batch is in another batch, or is not verified any more."""


def jobs_to_settle(session: Session) -> list[str]:
    """Return settling jobs and jobs with verified units in no batch, oldest first."""
    due = or_(Job.status == JobStatus.SETTLING, exists().where(Unit.job_id == Job.id, *_UNPAID))
    query = select(Job.id).where(jobs_repository.IS_OPEN, Job.status != JobStatus.SUBMITTED, due)
    return list(session.scalars(query.order_by(Job.created_at, Job.id)))


def payable_units(session: Session, job_id: str) -> list[UnitSummary]:
    """Return a job's payable units: verified, in no batch, in a payable round; by round, slot."""
    job = jobs_repository.job(session, job_id)
    if job is None:
        return []
    closed = job.current_round if job.status == JobStatus.RUNNING else job.rounds
    decided = (*UNIT_DECIDED, UnitStatus.DISPUTED)  # disputed units do not block settlement of later rounds
    undecided = session.scalar(select(func.min(Unit.round)).where(Unit.job_id == job_id, Unit.status.not_in(decided)))
    before = closed if undecided is None else min(closed, undecided)
    query = select(Unit).where(Unit.job_id == job_id, *_UNPAID, Unit.round < before).order_by(Unit.round, Unit.slot)
    return [facts(job, unit) for unit in session.scalars(query)]


def unpaid_count(session: Session) -> tuple[int, datetime | None]:
    """Return the number of verified units in no batch, and the time of the oldest decision."""
    return session.execute(select(func.count(), func.min(Unit.decided_at)).where(*_UNPAID)).tuples().one()


def add_to_batch(session: Session, unit_ids: Sequence[int], batch: int) -> None:
    """Put verified units, all or none, into a settlement batch.

    Raises:
        AlreadySettled: one of them is in a batch already, or no longer verified.
    """
    statement = update(Unit).where(Unit.id.in_(unit_ids), *_UNPAID).values(settlement_id=batch, settlement_reason=None)
    entered = len(session.scalars(statement.returning(Unit.id)).all())
    if entered != len(unit_ids):
        raise AlreadySettled(f"{entered} of {len(unit_ids)} units could enter settlement batch {batch}")


def mark_settled(session: Session, job_id: str, batch: int, at: datetime) -> None:
    """Let the units of a batch's final line count as their providers' history."""
    mine = Unit.job_id == job_id, Unit.settlement_id == batch
    session.execute(update(Unit).where(*mine).values(settled_at=at))


def remove_from_batch(session: Session, batch: int, reason: str) -> None:
    """Free the units of a void batch. ``reason`` is a stable code."""
    freed = {"settlement_id": None, "settled_at": None, "settlement_reason": reason}
    session.execute(update(Unit).where(Unit.settlement_id == batch).values(freed))


def batch_of(session: Session, unit_id: int) -> int | None:
    """Return the settlement batch of a unit."""
    return session.scalar(select(Unit.settlement_id).where(Unit.id == unit_id))


def units_in_batch(session: Session, batch: int) -> list[UnitSummary]:
    """Return the units of a settlement batch, unordered."""
    query = select(Job, Unit).join(Unit, Unit.job_id == Job.id).where(Unit.settlement_id == batch)
    return [facts(job, unit) for job, unit in session.execute(query).tuples()]


def leaves_in_batches(session: Session, leaves: Collection[str], batches: Collection[int]) -> set[str]:
    """Return those commitment leaves whose units are in one of these settlement batches."""
    query = select(Acknowledgement.leaf).join(Unit, Unit.id == Acknowledgement.unit_id)
    return set(session.scalars(query.where(Unit.settlement_id.in_(batches), Acknowledgement.leaf.in_(leaves))))


def forfeit_unit(session: Session, unit_id: int, reason: str) -> None:
    """Reject a verified unit in no batch after its lost dispute; no-op for other units."""
    _, unit = units_repository.lock_unit(session, unit_id)
    if unit.status == UnitStatus.VERIFIED and unit.settlement_id is None:
        transition_unit(session, unit, UnitEvent.STRIKE, at=utc_now(), reason=reason)


def start_settling(session: Session) -> None:
    """Move jobs that ended early and have no undecided units to ``settling``."""
    for job_id in jobs_repository.jobs_in(session, _ENDED_EARLY):
        job = jobs_repository.lock_job(session, job_id)
        if job is not None and job.status in _ENDED_EARLY and not units_repository.has_undecided_units(session, job_id):
            transition_job(session, job, JobEvent.SETTLE)


def set_record(session: Session, job_id: str, record_cid: str) -> None:
    """Store the CID of the record in the job's last settlement line."""
    job = jobs_repository.lock_job(session, job_id)
    if job is not None:
        job.record_cid = record_cid


def record_payment(session: Session, job_id: str, *, paid_wei: int, fee_wei: int, refund_wei: int) -> bool:
    """Add final payments from the job's escrow (negative: returned); False for unknown jobs."""
    job = jobs_repository.lock_job(session, job_id)
    if job is None:
        return False
    job.paid_wei = (job.paid_wei or 0) + paid_wei
    job.fee_wei = (job.fee_wei or 0) + fee_wei
    job.refund_wei = (job.refund_wei or 0) + refund_wei
    return True


def end_settlement(session: Session, job_id: str, *, tx: str, at: datetime) -> bool:
    """End a job whose escrow is empty. Return false if the job is not settling."""
    job = jobs_repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.SETTLING:
        return False
    job.settlement_tx, job.settled_at = tx, at
    spending.set_cost(session, job_id, (job.paid_wei or 0) + (job.fee_wei or 0))
    transition_job(session, job, JobEvent.SETTLEMENT_FINAL)
    return True


def reopen_settlement(session: Session, job_id: str) -> None:
    """Return a settled job to ``settling`` after a batch's veto. Its reason stays."""
    job = jobs_repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.SETTLED:
        return
    spending.set_cost(session, job_id, job.budget_wei)
    job.settlement_tx = job.settled_at = None
    transition_job(session, job, JobEvent.VETO)
