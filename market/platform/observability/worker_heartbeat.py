"""Whether a background worker is consuming: a mark in Redis that each sweep renews."""

from redis import Redis

_KEY = "zoo:worker:alive"


ALIVE_SECONDS = 60
"""A worker that has not swept for so long counts as mute, even if its process lives."""


def report_alive(redis: Redis) -> None:
    """Called by each sweep."""
    redis.set(_KEY, "1", ex=ALIVE_SECONDS)


def worker_alive(redis: Redis) -> bool:
    """Whether some worker has swept lately."""
    return bool(redis.exists(_KEY))
