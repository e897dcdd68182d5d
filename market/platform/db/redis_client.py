"""Redis clients that share one circuit breaker, so that an absent Redis delays few calls."""

from functools import cache
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from market.platform.breaker import Breaker

_TIMEOUTS: dict[str, Any] = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0}


@cache
def breaker_of(url: str) -> Breaker:
    """Return this process's breaker for the Redis server at ``url``."""
    return Breaker("redis", (RedisConnectionError, RedisTimeoutError), RedisConnectionError)


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
