"""Batched look-up of callers: one query for all waiting requests."""

import asyncio
import time
from collections.abc import Collection

from fastapi.concurrency import run_in_threadpool

from market.accounts import service
from market.accounts.service import Principal
from market.platform.db.session import Database
from zoo_protocol.hashing import sha256

_CACHE_SECONDS = 60.0
_MAX_CACHED = 10_000


class Callers:
    """Look-up of callers for the coroutines of one event loop.

    Requests that arrive during a query share the next one. Each request is therefore answered by a query that began
    after its arrival, so credentials revoked before are refused.
    """

    def __init__(self, database: Database, admins: Collection[str]) -> None:
        self._database, self._admins = database, admins
        self._waiting: list[tuple[str, asyncio.Future[Principal | None]]] = []
        self._querying: asyncio.Task[None] | None = None
        self._cache: dict[bytes, tuple[Principal, float]] = {}

    def cached_principal(self, secret: str) -> Principal | None:
        """Return the caller of this secret if a query within the last minute found it.

        The secret may be revoked. Callers must write only if it is live (``service.still_live``), and must use
        :meth:`find` before any other response.
        """
        principal, at = self._cache.get(sha256(secret.encode()), (None, 0.0))
        return principal if time.monotonic() - at < _CACHE_SECONDS else None

    async def find(self, secret: str) -> Principal | None:
        """Return the caller of this bearer secret; None if it is unknown, expired or revoked."""
        answer: asyncio.Future[Principal | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((secret, answer))
        if self._querying is None or self._querying.done():
            self._querying = asyncio.create_task(self._query())
        return await answer

    async def _query(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, []
            try:
                found = await run_in_threadpool(self._look_up, {secret for secret, _ in asked})
            except Exception as error:  # all requests of the batch fail
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for secret, answer in asked:
                self._store(secret, found.get(secret))
                if not answer.done():
                    answer.set_result(found.get(secret))

    def _store(self, secret: str, principal: Principal | None) -> None:
        key = sha256(secret.encode())
        if principal is None:
            self._cache.pop(key, None)
            return
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = (principal, time.monotonic())

    def _look_up(self, secrets: Collection[str]) -> dict[str, Principal]:
        with self._database.reading() as session:
            return service.authenticate(session, secrets, self._admins)
