"""Who makes the requests that are under way: one question to the database for all that wait for an answer."""

import asyncio
import time
from collections.abc import Collection

from fastapi.concurrency import run_in_threadpool

from market.accounts import service
from market.accounts.service import Principal
from market.platform.db.session import Database
from zoo_protocol.hashing import sha256

_REMEMBERED_SECONDS = 60.0


_MOST = 10_000  # callers that a process remembers


class Callers:
    """Looks callers up. Used by the coroutines of one event loop.

    Requests that come while a look-up is under way share the next one. So each is answered by a query that began after
    it came: what was revoked before is refused, as if everyone asked alone.
    """

    def __init__(self, database: Database, admins: Collection[str]) -> None:
        self._database, self._admins = database, admins
        self._waiting: list[tuple[str, asyncio.Future[Principal | None]]] = []
        self._asking: asyncio.Task[None] | None = None
        self._remembered: dict[bytes, tuple[Principal, float]] = {}

    def cached_principal(self, secret: str) -> Principal | None:
        """Who held this secret when it was last looked up, if that was within a minute.

        It may be revoked since. So this is for requests that write only if it is live (``service.still_live``), and
        that ask :meth:`find` before they answer anything else.
        """
        principal, at = self._remembered.get(sha256(secret.encode()), (None, 0.0))
        return principal if time.monotonic() - at < _REMEMBERED_SECONDS else None

    async def find(self, secret: str) -> Principal | None:
        """Who holds this bearer secret; None: nobody, it is unknown, expired or revoked."""
        answer: asyncio.Future[Principal | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((secret, answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await answer

    async def _ask(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, []
            try:
                found = await run_in_threadpool(self._look_up, {secret for secret, _ in asked})
            except Exception as error:  # everybody's request fails by it, as it would alone
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for secret, answer in asked:
                self._remember(secret, found.get(secret))
                if not answer.done():
                    answer.set_result(found.get(secret))

    def _remember(self, secret: str, principal: Principal | None) -> None:
        key = sha256(secret.encode())
        if principal is None:
            self._remembered.pop(key, None)
            return
        if len(self._remembered) >= _MOST:
            self._remembered.clear()
        self._remembered[key] = (principal, time.monotonic())

    def _look_up(self, secrets: Collection[str]) -> dict[str, Principal]:
        with self._database.reading() as session:
            return service.authenticate(session, secrets, self._admins)
