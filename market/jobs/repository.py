"""Queries over jobs and slots.

Functions named ``lock_*`` take the row ``FOR NO KEY UPDATE`` and refresh it. Locks are always taken in the order job,
unit, lease, which prevents deadlocks.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, any_, bindparam, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session, defer

from market.domain.lifecycle import JobStatus
from market.jobs.models import Job, Slot
from market.platform.db.base import Hash32
from market.platform.db.locks import locked
from market.platform.db.prepared import Prepared

TERMINAL_STATUSES = (JobStatus.SETTLED, JobStatus.REJECTED)
IS_OPEN = Job.status.not_in(TERMINAL_STATUSES)  # the condition of index ix_jobs_open

_PLACEMENT_LOCK = 0x706C6163  # "plac"


def job(session: Session, job_id: str) -> Job | None:
    return session.get(Job, job_id)


def progress(session: Session, job_ids: Collection[str]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return (id, matched_at, round_started_at, current_round, rounds) of these jobs."""
    columns = (Job.id, Job.matched_at, Job.round_started_at, Job.current_round, Job.rounds)
    among = Job.id == any_(literal([*job_ids], ARRAY(Hash32)))  # one parameter for any number
    return session.execute(select(*columns).where(among)).all()


_JOB_TO_READ = Prepared(select(*Job.__table__.columns).where(Job.id == bindparam("job_id", type_=Hash32)))

_JOB_COLUMNS = Job.__table__.columns.keys()


def job_to_read(session: Session, job_id: str) -> Job | None:
    """Return a copy of the job outside the session; changes of it are not written."""
    found = _JOB_TO_READ.rows(session, {"job_id": job_id})
    return Job(**dict(zip(_JOB_COLUMNS, found[0], strict=True))) if found else None


def lock_job(session: Session, job_id: str) -> Job | None:
    return session.scalar(locked(select(Job).where(Job.id == job_id)))


def _expires_at() -> ColumnElement[datetime]:
    return func.coalesce(Job.amended_wait_until, Job.wait_until)


def jobs_where(
    session: Session, where: Sequence[ColumnElement[bool]], limit: int, before: tuple[datetime, str] | None
) -> list[Job]:
    """Return jobs, newest first; ``before`` is the (creation time, id) of the last one seen."""
    query = select(Job).where(*where)
    if before is not None:
        query = query.where((Job.created_at < before[0]) | ((Job.created_at == before[0]) & (Job.id < before[1])))
    return list(session.scalars(query.order_by(Job.created_at.desc(), Job.id.desc()).limit(limit)))


def ids_of(session: Session, payer: str) -> set[str]:
    return set(session.scalars(select(Job.id).where(Job.payer == payer)))


def payers(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    return dict(session.execute(select(Job.id, Job.payer).where(Job.id.in_(job_ids))).tuples().all())


def count_by_status(session: Session) -> dict[str, int]:
    return dict(session.execute(select(Job.status, func.count()).group_by(Job.status)).tuples().all())


def running_since_order(session: Session, waited_before: datetime) -> list[str]:
    """Return running jobs whose order ended before then."""
    query = select(Job.id).where(Job.status == JobStatus.RUNNING, Job.wait_until <= waited_before)
    return list(session.scalars(query.order_by(Job.id)))


def long_paused(session: Session, refund_after: timedelta, now: datetime) -> list[str]:
    """Return paused running jobs whose order ended more than ``refund_after`` ago."""
    query = select(Job.id).where(
        Job.status == JobStatus.RUNNING, Job.paused_at.is_not(None), Job.wait_until <= now - refund_after
    )
    return list(session.scalars(query.order_by(Job.id)))


def jobs_in_book(session: Session, tier_id: int, now: datetime) -> list[Job]:
    """Return the jobs in the book of a tier, oldest first; their documents load on access."""
    query = select(Job).where(
        Job.status == JobStatus.MATCHING, Job.tier_id == tier_id, _expires_at() > now, Job.paused_at.is_(None)
    )
    documents = defer(Job.request), defer(Job.spec)  # no bid reads them
    return list(session.scalars(query.options(*documents).order_by(Job.funded_at, Job.id)))


def asks(session: Session, tier_id: int, limit: int) -> list[tuple[dict[str, Any], int]]:
    """Return (requirements, nodes) of a tier's newest jobs that wait for or hold nodes."""
    query = select(Job.requirements, Job.nodes).where(
        Job.status.in_((JobStatus.MATCHING, JobStatus.RUNNING)), Job.tier_id == tier_id
    )
    return [
        (found, nodes) for found, nodes in session.execute(query.order_by(Job.funded_at.desc(), Job.id).limit(limit))
    ]


def jobs_past_waiting(session: Session, now: datetime) -> list[str]:
    query = select(Job.id).where(Job.status == JobStatus.MATCHING, _expires_at() <= now)
    return list(session.scalars(query.order_by(Job.id)))


def jobs_in(session: Session, statuses: Collection[JobStatus]) -> list[str]:
    return list(session.scalars(select(Job.id).where(Job.status.in_(statuses)).order_by(Job.id)))


def lock_placement(session: Session) -> None:
    """Serialise placements until the end of the transaction, so that no node is placed twice."""
    session.execute(select(func.pg_advisory_xact_lock(_PLACEMENT_LOCK)))


def slots(session: Session, job_id: str) -> list[Slot]:
    return list(session.scalars(select(Slot).where(Slot.job_id == job_id).order_by(Slot.slot)))


def slot_holders(session: Session) -> set[str]:
    return set(session.scalars(select(Slot.provider).where(Slot.provider.is_not(None))))


def held_slots() -> Select[str | None, str]:
    """Return the query of (node, job) for all replicas that a node holds."""
    return select(Slot.provider, Slot.job_id).where(Slot.provider.is_not(None))


def auction_rounds_of_open_jobs(session: Session) -> set[int]:
    query = select(Job.auction_round_id).where(IS_OPEN, Job.auction_round_id.is_not(None))
    return {number for number in session.scalars(query) if number is not None}
