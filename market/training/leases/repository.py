"""Lease queries. Lock order: see :mod:`market.jobs.repository`."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import exists, or_, select
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus, LeaseStatus, UnitStatus
from market.jobs.models import Job, Slot
from market.platform.db.locks import locked
from market.training.leases.models import Lease
from market.training.units.models import Unit

OPEN_LEASE = (LeaseStatus.OFFERED, LeaseStatus.ACTIVE)

VERIFIER_WORK = ("replay", "evaluate")
"""Kinds of leases that a verifier works on one at a time."""


def lease(session: Session, lease_id: str) -> Lease | None:
    return session.get(Lease, lease_id)


def lock_lease(session: Session, lease_id: str) -> tuple[Job, Unit | None, Lease] | None:
    found = session.execute(select(Lease.job_id, Lease.unit_id).where(Lease.id == lease_id)).one_or_none()
    if found is None:
        return None
    job_row = session.scalars(locked(select(Job).where(Job.id == found.job_id))).one()
    unit_row = session.scalar(locked(select(Unit).where(Unit.id == found.unit_id)))
    return job_row, unit_row, session.scalars(locked(select(Lease).where(Lease.id == lease_id))).one()


def lock_lease_alone(session: Session, lease_id: str) -> Lease | None:
    """Lock and return the lease; for callers that touch neither its job nor its unit."""
    return session.scalar(locked(select(Lease).where(Lease.id == lease_id)))


def lock_next_lease(session: Session, holder: str, kinds: Sequence[str], now: datetime) -> Lease | None:
    """Return the node's oldest offered lease, locked; skip a locked one."""
    query = select(Lease).where(
        Lease.holder == holder, Lease.status == LeaseStatus.OFFERED, Lease.kind.in_(kinds), Lease.expires_at > now
    )
    return session.scalar(locked(query.order_by(Lease.created_at, Lease.id).limit(1), skip_locked=True))


def offers(session: Session, holders: Collection[str], now: datetime) -> set[tuple[str, str]]:
    """Return (holder, kind) of the leases that are offered to these nodes."""
    query = select(Lease.holder, Lease.kind).where(
        Lease.holder.in_(holders), Lease.status == LeaseStatus.OFFERED, Lease.expires_at > now
    )
    return set(session.execute(query).tuples())


def lock_open_leases(
    session: Session,
    job_id: str,
    *,
    holder: str | None = None,
    unit_id: int | None = None,
    kinds: Sequence[str] | None = None,
) -> Iterator[tuple[Job, Unit | None, Lease]]:
    """Lock and yield the job's open leases, by node, unit or kinds, as :func:`lock_lease`."""
    query = select(Lease.id).where(Lease.job_id == job_id, Lease.status.in_(OPEN_LEASE))
    if holder is not None:
        query = query.where(Lease.holder == holder)
    if unit_id is not None:
        query = query.where(Lease.unit_id == unit_id)
    if kinds is not None:
        query = query.where(Lease.kind.in_(kinds))
    for lease_id in session.scalars(query.order_by(Lease.id)).all():
        found = lock_lease(session, lease_id)
        if found and found[2].status in OPEN_LEASE:  # it may have ended with an earlier one
            yield found


def follow_leases(session: Session, checkpoint_id: int) -> list[Lease]:
    query = select(Lease).where(Lease.kind == "follow", Lease.checkpoint_id == checkpoint_id)
    return list(session.scalars(query.order_by(Lease.created_at, Lease.id)))


def followed_jobs(session: Session, holders: Collection[str]) -> dict[str, str]:
    """Return by node the running job whose checkpoint it prefetched last."""
    query = (
        select(Lease.holder, Lease.job_id)
        .join(Job, Job.id == Lease.job_id)
        .where(Lease.kind == "follow", Lease.holder.in_(holders), Job.status == JobStatus.RUNNING)
        .where(Lease.status.in_((*OPEN_LEASE, LeaseStatus.DONE)))
        .distinct(Lease.holder)
        .order_by(Lease.holder, Lease.created_at.desc(), Lease.id)
    )
    return dict(session.execute(query).tuples().all())


def expired_leases(session: Session, now: datetime) -> list[str]:
    query = select(Lease.id).where(Lease.status.in_(OPEN_LEASE), Lease.expires_at <= now)
    return list(session.scalars(query.order_by(Lease.expires_at, Lease.id)))


def extend_leases(session: Session, ran_out_since: datetime, until: datetime) -> int:
    """Extend open leases that expire after ``ran_out_since``; return their number."""
    ended = Lease.status.in_(OPEN_LEASE), Lease.expires_at >= ran_out_since, Lease.expires_at < until
    extended = session.scalars(locked(select(Lease).where(*ended).order_by(Lease.id))).all()
    for found in extended:
        found.expires_at = until
    return len(extended)


def overdue_uploads(session: Session, committed_before: datetime) -> list[tuple[str, datetime]]:
    """Return (id, commitment time) of train leases committed before then, not uploaded."""
    query = select(Lease.id, Unit.committed_at).join(Unit, Unit.id == Lease.unit_id)
    query = query.where(Lease.status.in_(OPEN_LEASE), Lease.kind == "train")
    query = query.where(Unit.status == UnitStatus.COMMITTED, Unit.committed_at < committed_before)
    found = session.execute(query.order_by(Unit.committed_at, Lease.id)).tuples()
    return [(lease_id, committed_at) for lease_id, committed_at in found if committed_at is not None]


def held_another_lease(session: Session, lease: Lease) -> bool:
    """Return True if the holder had pulled another open lease of its thread after the offer."""
    kinds = VERIFIER_WORK if lease.kind in VERIFIER_WORK else (lease.kind,)
    others = select(Lease.id).where(Lease.holder == lease.holder, Lease.kind.in_(kinds), Lease.id != lease.id)
    is_held = or_(Lease.ended_at.is_(None), Lease.ended_at > lease.created_at)
    return bool(session.scalar(select(others.where(Lease.pulled_at.is_not(None), is_held).exists())))


def evaluations(session: Session, job_id: str) -> list[Lease]:
    """Return the leases of the job's evaluations in the order of their offers."""
    query = select(Lease).where(Lease.job_id == job_id, Lease.kind == "evaluate")
    return list(session.scalars(query.order_by(Lease.created_at, Lease.id)))


def replays_since(session: Session, asked_before: datetime) -> list[tuple[str, datetime, dict[str, Any]]]:
    """Return (id, offer time, specification) of open replays and evaluations from before then."""
    query = select(Lease.id, Lease.created_at, Lease.task["spec"]).where(Lease.status.in_(OPEN_LEASE))
    query = query.where(Lease.kind.in_(VERIFIER_WORK), Lease.created_at < asked_before)
    query = query.order_by(Lease.created_at, Lease.id)
    return list(session.execute(query).tuples())


def is_at_work(session: Session, provider: str) -> bool:
    """Return True if the node holds a replica, or still works for a job that it left."""
    holds = exists().where(Slot.provider == provider)
    works = exists().where(Lease.holder == provider, Lease.status.in_(OPEN_LEASE), Lease.kind.in_(("train", "reveal")))
    return session.scalar(select(or_(holds, works))) or False


def jobs_held_by(session: Session, provider: str) -> list[str]:
    """Return the ids of jobs in which the node holds a replica or an open lease, in lock order."""
    held = select(Slot.job_id).where(Slot.provider == provider)
    leased = select(Lease.job_id).where(Lease.holder == provider, Lease.status.in_(OPEN_LEASE))
    return sorted(set(session.scalars(held.union(leased))))
