"""When the market itself was away, by the database's clock: what nodes could not do meanwhile is held against nobody.

Each part that nodes depend on says again and again that it works. If it is heard of after a silence that is too long
for it, that silence was an outage, whatever it came from: the part itself, its host, or the database that it could not
write to.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.platform.db.session import database_now
from market.providers.outages.models import ComponentHeartbeat, Outage

API, SWEEP, STORAGE = "api", "sweep", "storage"

KEPT = timedelta(days=30)
"""Longer than anything lasts from which outages are taken off."""


def api_gap(lease_seconds: float) -> timedelta:
    """The longest silence of the API that nodes do not notice: they renew a lease when less of its time is over."""
    return timedelta(seconds=max(3.0, lease_seconds / 3))


def sweep_gap(interval_seconds: float) -> timedelta:
    """The longest time between two sweeps where the workers are only busy."""
    return timedelta(seconds=max(60.0, 3 * interval_seconds))


def report(session: Session, part: str, gap: timedelta) -> Outage | None:
    """The part works now; gives the outage that ends with this, if it was silent for longer than ``gap``."""
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


def note_storage(session: Session, works: bool) -> None:
    """Storage was looked at. Where it does not work, it has not since it was last found to, or for a minute where it
    never was; nobody looks while nothing depends on it."""
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


def is_away(session: Session, part: str, gap: timedelta, now: datetime) -> bool:
    """Whether the part has been silent for longer than ``gap``; one that was never heard of is not known to be."""
    seen_at = session.scalar(select(ComponentHeartbeat.seen_at).where(ComponentHeartbeat.part == part))
    return seen_at is not None and now - seen_at > gap


def time_away(session: Session, start: datetime, end: datetime, parts: Collection[str] = (API, SWEEP)) -> timedelta:
    """For how long any of the parts was away between two instants."""
    query = select(Outage.starts_at, Outage.ends_at).where(
        Outage.part.in_(parts), Outage.starts_at < end, Outage.ends_at > start
    )
    total, counted = timedelta(0), start
    for begins, ends in session.execute(query.order_by(Outage.starts_at)).tuples():
        begins, ends = max(begins, counted), min(ends, end)
        if ends > begins:
            total, counted = total + (ends - begins), ends
    return total


def forget(session: Session, now: datetime) -> None:
    """Drop the outages that nothing is counted from any more."""
    session.execute(delete(Outage).where(Outage.ends_at < now - KEPT))
