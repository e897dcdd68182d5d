"""Outages of the market, by the database's clock. They extend the nodes' deadlines.

Each component that nodes depend on reports its liveness periodically. A gap that is too long is an outage of the
component, its host or the database.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.platform.db.session import database_now
from market.providers.models import ComponentHeartbeat, Outage

API, SWEEP, STORAGE = "api", "sweep", "storage"

_UNCHECKED = timedelta(minutes=1)
"""Time before a failed check that belongs to its outage, for sweeps of busy workers."""
RETENTION = timedelta(days=30)
"""Retention of outages; longer than any deadline that they extend."""


def api_gap(lease_seconds: float) -> timedelta:
    """Return the longest gap of the API that is not an outage: nodes renew leases less often."""
    return timedelta(seconds=max(3.0, lease_seconds / 3))


def sweep_gap(interval_seconds: float) -> timedelta:
    """Return the longest gap between two sweeps that is not an outage, for busy workers."""
    return timedelta(seconds=max(60.0, 3 * interval_seconds))


def report(session: Session, part: str, gap: timedelta) -> Outage | None:
    """Record that the component works; return the outage longer than ``gap`` that ends now."""
    now = database_now(session)
    session.execute(insert(ComponentHeartbeat).values(part=part, seen_at=now).on_conflict_do_nothing())
    row = session.scalars(select(ComponentHeartbeat).where(ComponentHeartbeat.part == part).with_for_update()).one()
    before, row.seen_at = row.seen_at, max(now, row.seen_at)
    if now - before <= gap:
        return None
    outage = Outage(part=part, starts_at=before, ends_at=now)
    session.add(outage)
    session.flush()
    return outage


def record_storage_check(session: Session, works: bool, began: datetime | None = None) -> None:
    """Record a check of storage. A failure extends the outage since the last success.

    Without an earlier success, the outage begins a minute ago. Checks run only while a task depends on storage.

    Args:
        began: start of a failed task, if others may have worked unnoticed since the last check. The outage begins a
            minute before it, or goes on if it ended later.
    """
    now = database_now(session)
    unseen = insert(ComponentHeartbeat).values(part=STORAGE, seen_at=now - _UNCHECKED)
    session.execute(unseen.on_conflict_do_nothing())
    row = session.get_one(ComponentHeartbeat, STORAGE)
    if works:
        row.seen_at = now
        return
    starts_at = row.seen_at
    if began is not None:
        first = min(began, now) - _UNCHECKED
        current = select(func.max(Outage.starts_at)).where(
            Outage.part == STORAGE, Outage.starts_at >= row.seen_at, Outage.ends_at >= first
        )
        starts_at = session.scalar(current) or max(row.seen_at, first)
    away = insert(Outage).values(part=STORAGE, starts_at=starts_at, ends_at=now)
    session.execute(away.on_conflict_do_update(index_elements=["part", "starts_at"], set_={"ends_at": now}))


def is_unresponsive(session: Session, part: str, gap: timedelta, now: datetime) -> bool:
    """Return True if the component was silent for longer than ``gap``; False if never seen."""
    seen_at = session.scalar(select(ComponentHeartbeat.seen_at).where(ComponentHeartbeat.part == part))
    return seen_at is not None and now - seen_at > gap


def outage_time(session: Session, start: datetime, end: datetime, parts: Collection[str] = (API, SWEEP)) -> timedelta:
    """Return the time between two instants in which any of the components had an outage."""
    query = select(Outage.starts_at, Outage.ends_at).where(
        Outage.part.in_(parts), Outage.starts_at < end, Outage.ends_at > start
    )
    total, counted = timedelta(0), start
    for begins, ends in session.execute(query.order_by(Outage.starts_at)).tuples():
        begins, ends = max(begins, counted), min(ends, end)
        if ends > begins:
            total, counted = total + (ends - begins), ends
    return total


def time_at_work(session: Session, start: datetime, end: datetime) -> timedelta:
    """Return the time between two instants in which every component of the market worked.

    It ends with the last heartbeat: a task may run before the sweep that records the outage.
    """
    steady = ComponentHeartbeat.part.in_((API, SWEEP))
    seen_at = session.scalar(select(func.min(ComponentHeartbeat.seen_at)).where(steady))
    until = end if seen_at is None else min(end, seen_at)
    return until - start - outage_time(session, start, until, (API, SWEEP, STORAGE))


def delete_expired(session: Session, now: datetime) -> None:
    """Delete outages past their retention."""
    session.execute(delete(Outage).where(Outage.ends_at < now - RETENTION))
