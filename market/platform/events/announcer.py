"""Announcement of job events to their subscribers, through Redis."""

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from market.platform.db.session import Database
from market.platform.events import repository


def channel(job_id: str) -> str:
    """Return the Redis channel of a job's subscribers."""
    return f"zoo:job:{job_id}"


_STEP_RETENTION = timedelta(days=1)
"""Retention of ``step`` events, which every heartbeat emits."""

OnAnnounced = Callable[[Session, Collection[int]], None]


def announce(database: Database, redis: Redis, on_announced: OnAnnounced) -> int:
    """Announce all unannounced events and return the number of their jobs.

    The mark in the database is authoritative. Without the message in Redis, subscribers poll every second.

    Args:
        on_announced: receives the events' ids in the announcing transaction.
    """
    with database.transaction() as session:
        announced = repository.announce_all(session)
        if announced:
            on_announced(session, announced.keys())
    jobs = set(announced.values())
    with suppress(RedisError):
        for job_id in jobs:
            redis.publish(channel(job_id), "")
    return len(jobs)


def delete_old_steps(session: Session, now: datetime) -> None:
    """Delete old ``step`` events; called by the sweep."""
    repository.delete_steps(session, now - _STEP_RETENTION)
