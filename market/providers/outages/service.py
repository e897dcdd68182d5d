"""Outages of the market, by the database's clock. They extend the nodes' deadlines.

Each component that nodes depend on reports its liveness periodically. A gap that is too long is an outage of the
component, its host or the database.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.platform.db.session import database_now
from market.providers.models import ComponentHeartbeat, Outage

API, SWEEP, STORAGE = "api", "sweep", "storage"

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


def record_storage_check(session: Session, works: bool) -> None:
    """Record a check of storage. A failure extends the outage since the last success.

    Without an earlier success, the outage begins a minute ago. Checks run only while a task depends on storage.
    """
    now = database_now(session)
    row = session.get(ComponentHeartbeat, STORAGE) or ComponentHeartbeat(
        part=STORAGE, seen_at=now - timedelta(minutes=1)
    )
    session.add(row)
    if works:
        row.seen_at = now
    else:
        away = insert(Outage).values(part=STORAGE, starts_at=row.seen_at, ends_at=now)
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


def delete_expired(session: Session, now: datetime) -> None:
    """Delete outages past their retention."""
    session.execute(delete(Outage).where(Outage.ends_at < now - RETENTION))
