"""Queries over what settlements pay: verified units and the batches that they are in."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED, JobStatus, UnitStatus
from market.jobs.models import Job
from market.training.commitments.models import Acknowledgement
from market.training.units.models import Unit


def jobs_to_settle(session: Session) -> list[str]:
    at_rest = (JobStatus.SUBMITTED, JobStatus.SETTLED, JobStatus.REJECTED)
    has_unpaid = exists().where(Unit.job_id == Job.id, Unit.status == UnitStatus.VERIFIED, Unit.settlement_id.is_(None))
    due = or_(Job.status == JobStatus.SETTLING, has_unpaid)
    return list(session.scalars(select(Job.id).where(Job.status.not_in(at_rest), due).order_by(Job.created_at, Job.id)))


def first_undecided_round(session: Session, job_id: str) -> int | None:
    settled_later = (*UNIT_DECIDED, UnitStatus.DISPUTED)  # who waits for a committee keeps nobody else waiting
    query = select(func.min(Unit.round)).where(Unit.job_id == job_id, Unit.status.not_in(settled_later))
    return session.scalar(query)


def unpaid_units(session: Session, job_id: str, before_round: int) -> list[Unit]:
    query = select(Unit).where(
        Unit.job_id == job_id,
        Unit.status == UnitStatus.VERIFIED,
        Unit.settlement_id.is_(None),
        Unit.round < before_round,
    )
    return list(session.scalars(query.order_by(Unit.round, Unit.slot)))


def unpaid_count(session: Session) -> tuple[int, datetime | None]:
    unpaid = Unit.status == UnitStatus.VERIFIED, Unit.settlement_id.is_(None)
    return session.execute(select(func.count(), func.min(Unit.decided_at)).where(*unpaid)).tuples().one()


def put_in_batch(session: Session, unit_ids: Sequence[int], batch: int) -> int:
    free = Unit.id.in_(unit_ids), Unit.status == UnitStatus.VERIFIED, Unit.settlement_id.is_(None)
    statement = update(Unit).where(*free).values(settlement_id=batch, settlement_reason=None).returning(Unit.id)
    return len(session.scalars(statement).all())


def batch_of(session: Session, unit_id: int) -> int | None:
    return session.scalar(select(Unit.settlement_id).where(Unit.id == unit_id))


def units_in_batch(session: Session, batch: int) -> list[tuple[Job, Unit]]:
    query = select(Job, Unit).join(Unit, Unit.job_id == Job.id).where(Unit.settlement_id == batch)
    return [row._tuple() for row in session.execute(query)]


def leaves_in_batches(session: Session, leaves: Collection[str], batches: Collection[int]) -> set[str]:
    query = select(Acknowledgement.leaf).join(Unit, Unit.id == Acknowledgement.unit_id)
    return set(session.scalars(query.where(Unit.settlement_id.in_(batches), Acknowledgement.leaf.in_(leaves))))


def take_from_batch(session: Session, batch: int, reason: str) -> int:
    freed = update(Unit).where(Unit.settlement_id == batch).values(settlement_id=None, settlement_reason=reason)
    return len(session.scalars(freed.returning(Unit.id)).all())
