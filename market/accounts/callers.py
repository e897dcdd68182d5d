"""Who makes the requests that are under way: one question to the database for all that wait for an answer."""

import asyncio
from collections.abc import Collection

from fastapi.concurrency import run_in_threadpool

from market.accounts import service
from market.accounts.service import Principal
from market.db.session import Database


class Callers:
    """Looks callers up. Used by the coroutines of one event loop.

    Requests that come while a look-up is under way share the next one. So each is answered by a query that began after
    it came: what was revoked before is refused, as if everyone asked alone.
    """

    def __init__(self, database: Database, admins: Collection[str]) -> None:
        self._database, self._admins = database, admins
        self._waiting: list[tuple[str, asyncio.Future[Principal | None]]] = []
        self._asking: asyncio.Task[None] | None = None

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
                if not answer.done():
                    answer.set_result(found.get(secret))

    def _look_up(self, secrets: Collection[str]) -> dict[str, Principal]:
        with self._database.reading() as session:
            return service.authenticate(session, secrets, self._admins)
