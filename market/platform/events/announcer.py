"""Tells waiting subscribers, through Redis, that a job has new events."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import structlog
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from market.platform.db.session import Database
from market.platform.events import repository

_log = structlog.get_logger(__name__)


def channel(job_id: str) -> str:
    """The Redis channel that wakes the subscribers of a job."""
    return f"zoo:job:{job_id}"


_STEPS_KEPT = timedelta(days=1)
"""How long it is told how far a unit was at some time; every heartbeat of every node tells it."""


OnAnnounced = Callable[[Session, Collection[int]], None]


def announce(database: Database, redis: Redis, on_announced: OnAnnounced) -> int:
    """Announce all events that are not; returns how many jobs have some.

    Args:
        on_announced: hears of the events' ids, in the transaction that announces them.

    The mark in the database is what counts. Redis only wakes subscribers early: without it they look each second.
    """
    with database.transaction() as session:
        announced = repository.announce_all(session)
        if announced:
            on_announced(session, announced.keys())
    jobs = set(announced.values())
    for job_id in jobs:
        try:
            redis.publish(channel(job_id), "")
        except RedisError as error:
            _log.warning("redis cannot be told of job events", error=str(error))
            break
    return len(jobs)


def forget_steps(session: Session, now: datetime) -> None:
    """Delete what was told of units' steps, once it is old; called by the sweep."""
    repository.forget_steps(session, now - _STEPS_KEPT)
