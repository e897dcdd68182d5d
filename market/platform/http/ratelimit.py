"""Rate limit: a token bucket in Redis per account, and one per client address.

A bucket has the quota of a minute and refills steadily, so bursts pass. One round trip reads all buckets of a request.
Far from the limit, a process counts up to a sixteenth of the quota itself, and reports it to Redis within 50 ms.

Requests pass while Redis does not answer (fail open). The limit protects against overload only.

All credentials of an account share its bucket. The last look-up of a credential tells its account; a credential without
a known account has its own bucket.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market.platform.db.redis_client import breaker_of, connect_async_redis
from market.platform.http.errors import RateLimited
from market.platform.http.problem import problem_response
from zoo_protocol.hashing import sha256

_WINDOW_SECONDS = 60
_WINDOW = _WINDOW_SECONDS * 10**6  # instants and spans are in microseconds
_UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})
_AHEAD = 16  # a process counts this fraction of a quota without Redis,
_FRESH = 10**6  # if its state of the bucket is younger than this
_REPORT_SECONDS = 0.05
_KNOWN_SECONDS = 60.0  # validity of a credential's look-up
_MAX_ENTRIES = 10_000  # buckets and credentials in a process's memory
_SCOPE_KEY = "zoo.rate"


# GCRA: each key holds the time at which its bucket is full again.
# ARGV: now, window, requests to take (0 or 1); per key, microseconds per request and requests already passed.
# Result: time to wait (if positive, nothing was taken); per key, time until its bucket is full.
_SCRIPT = """
local now, window, asked = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full, wait = {}, 0
for i, key in ipairs(KEYS) do
  local step, passed = tonumber(ARGV[2 + 2 * i]), tonumber(ARGV[3 + 2 * i])
  full[i] = math.max(tonumber(redis.call('GET', key) or now), now) + passed * step
  wait = math.max(wait, full[i] + asked * step - now - window)
end
local answer = {math.ceil(wait)}
for i, key in ipairs(KEYS) do
  if wait <= 0 then
    full[i] = full[i] + asked * tonumber(ARGV[2 + 2 * i])
  end
  if full[i] > now then
    redis.call('SET', key, string.format('%.0f', full[i]), 'PX', math.ceil((full[i] - now) / 1000))
  end
  answer[1 + i] = full[i] - now
end
return answer
"""


@dataclass(slots=True)
class _Bucket:
    """State of a bucket in this process. ``step``: microseconds per request."""

    name: str
    key: str
    quota: int
    step: int
    full_at: int = 0  # Redis's value at ``heard_at`` plus the requests since
    heard_at: int = 0
    unsent: int = 0  # requests to report to Redis
    in_flight: int = 0  # requests in an unanswered report

    def left(self, now: int) -> int:
        """Return the number of requests that are possible now."""
        return max(0, (_WINDOW - max(0, self.full_at - now)) // self.step)

    def has_plenty(self, now: int) -> bool:
        """Return True if this process may pass a request without Redis."""
        ahead = self.unsent + self.in_flight
        return now - self.heard_at < _FRESH and ahead < self.quota // _AHEAD and self.left(now) > self.quota // 2

    def take(self, now: int) -> None:
        self.full_at = max(self.full_at, now) + self.step
        self.unsent += 1


class _Counted:
    """Request with its buckets, for the headers of its response."""

    def __init__(self, limit: "RateLimit", credential: str | None, account: str | None) -> None:
        self._limit, self._credential, self._account = limit, credential, account
        self.buckets: list[_Bucket] = []
        self.wait_seconds = 0

    async def by_account(self, address: str | None) -> None:
        """Charge the request to the account, unless that is done; None: the credential is invalid.

        Raises:
            RateLimited: if the account made too many requests.
        """
        if self._credential is None:
            return
        self._limit.remember(self._credential, address)
        if address is None or address == self._account:
            return
        self.buckets = [bucket for bucket in self.buckets if bucket.name == "address"]
        account = self._limit.account_bucket(address)
        if account is not None:
            self.buckets.insert(0, account)
            self.wait_seconds = await self._limit.take([account])
        if self.wait_seconds:
            raise refusal(self.wait_seconds)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of the IETF draft, and Retry-After if the request is refused."""
        now = _now()
        tightest = min(self.buckets, key=lambda bucket: bucket.left(now) / bucket.quota)
        policy = ", ".join(f'"{bucket.name}";q={bucket.quota};w={_WINDOW_SECONDS}' for bucket in self.buckets)
        refill = max(0, math.ceil((tightest.full_at - now) / 10**6))
        headers = [
            (b"ratelimit-policy", policy.encode()),
            (b"ratelimit", f'"{tightest.name}";r={tightest.left(now)};t={refill}'.encode()),
        ]
        return [*headers, (b"retry-after", str(self.wait_seconds).encode())] if self.wait_seconds else headers


async def count_by_account(scope: Scope, address: str | None) -> None:
    """Charge a request to the account of its credential; None if the credential is invalid.

    Raises:
        RateLimited: if the account made too many requests.
    """
    counted: _Counted | None = scope.get(_SCOPE_KEY)
    if counted is not None:
        await counted.by_account(address)


def refusal(wait_seconds: int) -> RateLimited:
    return RateLimited(f"the next request is possible in {wait_seconds} s", extra={"retry_after": wait_seconds})


class RateLimit:
    """Middleware that counts requests except health checks, and answers 429 beyond a quota.

    Headers of the IETF draft: ``RateLimit-Policy`` has each quota and its window in seconds. ``RateLimit`` has the rest
    of the tightest one and the seconds until it is full. Several processes together may exceed a quota by a sixteenth
    per process beyond the first.

    Args:
        per_account: requests per minute of one account, or of one unknown credential; 0: no limit.
        per_address: requests per minute of one client address; 0: no limit.
    """

    def __init__(self, app: ASGIApp, redis_url: str, per_account: int, per_address: int) -> None:
        self._app = app
        self._redis, self._breaker = connect_async_redis(redis_url), breaker_of(redis_url)
        self._script = self._redis.register_script(_SCRIPT)
        self._per_account, self._per_address = per_account, per_address
        self._buckets: dict[str, _Bucket] = {}
        self._accounts: dict[str, tuple[str, float]] = {}
        self._reporting: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNLIMITED:
            await self._app(scope, receive, send)
            return
        counted = self._count(Request(scope))
        scope[_SCOPE_KEY] = counted

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and counted.buckets and not self._breaker.is_open:
                message["headers"] = [*message.get("headers", ()), *counted.headers()]
            await send(message)

        counted.wait_seconds = await self.take(counted.buckets)
        if counted.wait_seconds:
            answer = problem_response(Request(scope), refusal(counted.wait_seconds))
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _count(self, request: Request) -> _Counted:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        credential = account = None
        if scheme.lower() == "bearer" and token:
            credential = sha256(token.encode()).hex()  # Redis must not get the secret
            account = self._holder(credential)
        counted = _Counted(self, credential, account)
        if account is not None:
            own = self.account_bucket(account)
        else:
            own = None if credential is None else self._bucket("credential", credential, self._per_account)
        host = None if request.client is None else request.client.host
        address = None if host is None else self._bucket("address", host, self._per_address)
        counted.buckets = [bucket for bucket in (own, address) if bucket is not None]
        return counted

    def _holder(self, credential: str) -> str | None:
        address, seen_at = self._accounts.get(credential, (None, 0.0))
        return address if time.monotonic() - seen_at < _KNOWN_SECONDS else None

    def remember(self, credential: str, address: str | None) -> None:
        """Store the account of a credential; None if it is invalid."""
        if address is None:
            self._accounts.pop(credential, None)
            return
        if len(self._accounts) >= _MAX_ENTRIES:
            self._accounts.clear()
        self._accounts[credential] = (address, time.monotonic())

    def account_bucket(self, address: str) -> _Bucket | None:
        """Return the account's bucket; None if accounts have no limit."""
        return self._bucket("account", address, self._per_account)

    def _bucket(self, name: str, of: str, quota: int) -> _Bucket | None:
        if not quota:
            return None
        key = f"zoo:rate:{of}"
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= _MAX_ENTRIES:
                self._buckets = {key: one for key, one in self._buckets.items() if one.unsent}
            found = self._buckets[key] = _Bucket(name, key, quota, math.ceil(_WINDOW / quota))
        return found

    async def take(self, buckets: Sequence[_Bucket]) -> int:
        """Take a request from all buckets, or from none; return the seconds to wait in that case."""
        if not buckets or self._breaker.is_open:
            return 0
        now = _now()
        if all(bucket.has_plenty(now) for bucket in buckets):
            for bucket in buckets:
                bucket.take(now)
            if self._reporting is None or self._reporting.done():
                self._reporting = asyncio.create_task(self._report())
            return 0
        return math.ceil(await self._synchronise(buckets, asked=1) / 10**6)

    async def _report(self) -> None:
        await asyncio.sleep(_REPORT_SECONDS)
        await self._synchronise([bucket for bucket in self._buckets.values() if bucket.unsent], asked=0)

    async def _synchronise(self, buckets: Sequence[_Bucket], asked: int) -> int:
        """Report passed requests, take ``asked`` from each bucket; return microseconds to wait."""
        passed = [bucket.unsent for bucket in buckets]
        for bucket in buckets:
            bucket.in_flight, bucket.unsent = bucket.in_flight + bucket.unsent, 0
        now = _now()
        counts = [number for bucket, count in zip(buckets, passed, strict=True) for number in (bucket.step, count)]
        try:
            wait, *spans = await self._script([bucket.key for bucket in buckets], [now, _WINDOW, asked, *counts])
        except RedisError:
            return 0
        finally:
            for bucket, count in zip(buckets, passed, strict=True):
                bucket.in_flight -= count
        for bucket, span in zip(buckets, spans, strict=True):
            bucket.full_at = now + span + (bucket.unsent + bucket.in_flight) * bucket.step
            bucket.heard_at = now
        return int(wait)


def _now() -> int:
    return time.time_ns() // 1000
