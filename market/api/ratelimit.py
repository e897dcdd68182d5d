"""How many requests a caller may make: a token bucket in Redis for each credential, and one for each address.

A bucket holds as many requests as a minute allows and refills steadily, so a burst is fine and a stream is held to the
rate. Both buckets are asked in one round trip. Where Redis does not answer, requests pass (fail open): the limit guards
against overload, not against theft, and PostgreSQL holds every rule about money.
"""

import math
import time
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market.api.errors import RateLimited
from market.api.problem import problem_response
from zoo_protocol.hashing import sha256

_WINDOW_SECONDS = 60
_QUIET_SECONDS = 5.0  # how long a Redis that failed is left alone
_UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})

# GCRA: each key holds the time at which its bucket is full again. ARGV: now and, for each key, microseconds a request.
_SCRIPT = """
local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local full, left, wait = {}, {}, 0
for i, key in ipairs(KEYS) do
  local step = tonumber(ARGV[2 + i])
  full[i] = math.max(tonumber(redis.call('GET', key) or now), now) + step
  left[i] = math.floor((window - (full[i] - now)) / step)
  wait = math.max(wait, full[i] - now - window)
end
if wait <= 0 then
  for i, key in ipairs(KEYS) do
    redis.call('SET', key, string.format('%.0f', full[i]), 'PX', math.ceil((full[i] - now) / 1000))
  end
end
local answer = {math.ceil(wait)}
for i = 1, #KEYS do
  answer[2 * i] = left[i]
  answer[2 * i + 1] = full[i] - now
end
return answer
"""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Bucket:
    name: str
    key: str
    quota: int


class RateLimit:
    """Counts every request but those of health checks, tells what is left, and refuses with 429 what is too much.

    The headers are those of the IETF draft: ``RateLimit-Policy`` has each quota and its window in seconds,
    ``RateLimit`` what is left of the tighter one and in how many seconds it is full again.

    Args:
        per_credential: requests a minute of one session or API key; 0: no limit.
        per_address: requests a minute of one client address; 0: no limit.
    """

    def __init__(self, app: ASGIApp, redis_url: str, per_credential: int, per_address: int) -> None:
        self._app = app
        self._redis = Redis.from_url(redis_url, socket_timeout=1, socket_connect_timeout=1)
        self._script = self._redis.register_script(_SCRIPT)
        self._per_credential, self._per_address = per_credential, per_address
        self._quiet_until = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        buckets = self._buckets(Request(scope)) if scope["type"] == "http" else []
        found = await self._ask(buckets) if buckets else None
        if found is None:
            await self._app(scope, receive, send)
            return
        wait, headers = found
        if wait:
            refusal = RateLimited(f"the next request is possible in {wait} s", extra={"retry_after": wait})
            answer = problem_response(Request(scope), refusal, headers | {"Retry-After": str(wait)})
            await answer(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _buckets(self, request: Request) -> list[_Bucket]:
        if request.url.path in _UNLIMITED:
            return []
        buckets = []
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if self._per_credential and scheme.lower() == "bearer" and token:
            digest = sha256(token.encode()).hex()  # secrets go nowhere else, not even to Redis
            buckets.append(_Bucket("credential", f"zoo:rate:{digest}", self._per_credential))
        if self._per_address and request.client is not None:
            buckets.append(_Bucket("address", f"zoo:rate:{request.client.host}", self._per_address))
        return buckets

    async def _ask(self, buckets: list[_Bucket]) -> tuple[int, dict[str, str]] | None:
        """Seconds to wait (0: go on) and the headers; None if Redis does not answer."""
        if time.monotonic() < self._quiet_until:
            return None
        window = _WINDOW_SECONDS * 10**6
        steps = [math.ceil(window / bucket.quota) for bucket in buckets]
        try:
            wait, *states = await self._script(
                [bucket.key for bucket in buckets], [time.time_ns() // 1000, window, *steps]
            )
        except RedisError as error:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            _log.warning("requests are not limited: Redis does not answer", error=str(error))
            return None
        index = min(range(len(buckets)), key=lambda i: states[2 * i] / buckets[i].quota)
        left, refill = max(0, states[2 * index]), math.ceil(states[2 * index + 1] / 10**6)
        headers = {
            "RateLimit-Policy": ", ".join(
                f'"{bucket.name}";q={bucket.quota};w={_WINDOW_SECONDS}' for bucket in buckets
            ),
            "RateLimit": f'"{buckets[index].name}";r={left};t={refill}',
        }
        return math.ceil(wait / 10**6), headers
