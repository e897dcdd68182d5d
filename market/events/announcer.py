"""Tells waiting subscribers, through Redis, that a job has new events."""

import structlog
from redis import Redis
from redis.exceptions import RedisError

from market.db.session import Database
from market.events import repository

_log = structlog.get_logger(__name__)


def channel(job_id: str) -> str:
    """The Redis channel that wakes the subscribers of a job."""
    return f"zoo:job:{job_id}"


def announce(database: Database, redis: Redis) -> int:
    """Announce all events that are not; returns how many jobs have some.

    The mark in the database is what counts. Redis only wakes subscribers early: without it they look each second.
    """
    with database.transaction() as session:
        jobs = repository.announce_all(session)
    for job_id in jobs:
        try:
            redis.publish(channel(job_id), "")
        except RedisError as error:
            _log.warning("redis cannot be told of job events", error=str(error))
            break
    return len(jobs)
