"""Redis clients that share one circuit breaker, so that an absent Redis delays few calls."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import Any

import structlog
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

_PAUSE_SECONDS = 5.0
_TIMEOUTS: dict[str, Any] = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0}
_log = structlog.get_logger(__name__)


class Breaker:
    """State of one Redis server in this process, for all clients and threads.

    After a failure calls are refused for a pause. Then one call goes through, and all others after its answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._retry_at: float | None = None  # None: Redis answers

    @property
    def is_open(self) -> bool:
        """Return True if a call would be refused now."""
        return self._retry_at is not None and monotonic() < self._retry_at

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Make one call in this block. Raises RedisConnectionError if Redis failed shortly before."""
        with self._lock:
            if self.is_open:
                raise RedisConnectionError("Redis did not answer an earlier call")
            if self._retry_at is not None:
                self._retry_at = monotonic() + _PAUSE_SECONDS  # others are refused while this call waits
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError) as error:
            self._retry_at = monotonic() + _PAUSE_SECONDS
            _log.warning("redis_unavailable", error=str(error))
            raise
        except RedisError:  # also an answer
            self._retry_at = None
            raise
        self._retry_at = None


@cache
def breaker_of(url: str) -> Breaker:
    """Return this process's breaker for the Redis server at ``url``."""
    return Breaker()


class _Redis(Redis):
    breaker: Breaker

    def execute_command(self, *args: Any, **options: Any) -> Any:
        with self.breaker.attempt():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class _AsyncRedis(AsyncRedis):
    breaker: Breaker

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with self.breaker.attempt():
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


def connect_redis(url: str) -> Redis:
    """Return a client with timeouts, without retries: the sweep repeats lost messages."""
    client = _Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_TIMEOUTS)
    assert isinstance(client, _Redis)
    client.breaker = breaker_of(url)
    return client


def connect_async_redis(url: str) -> AsyncRedis:
    """Return such a client for coroutines. Subscriptions have to call the breaker themselves."""
    client = _AsyncRedis.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **_TIMEOUTS)
    assert isinstance(client, _AsyncRedis)
    client.breaker = breaker_of(url)
    return client
