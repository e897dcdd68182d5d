"""Long polls of nodes for leases. One query serves all waiting nodes."""

import asyncio
from collections.abc import Collection

import structlog
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from sse_starlette.sse import AppStatus

from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.training.leases import repository

LOOK_SECONDS = 0.15

_log = structlog.get_logger(__name__)


class LeaseWaiters:
    """Waiting nodes, resumed by an offered lease or the end of the server; one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[asyncio.Future[None], tuple[str, Collection[str]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, holder: str, kinds: Collection[str], seconds: float) -> None:
        """Return when a lease of one of these kinds is offered to the node, or after ``seconds``."""
        offered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[offered] = (holder, kinds)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait([offered], timeout=seconds)
        finally:
            del self._waiting[offered]

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            waiting = dict(self._waiting)
            try:
                offers = await run_in_threadpool(self._offers, {holder for holder, _ in waiting.values()})
            except SQLAlchemyError as error:  # a waiting node queries again when its time is over
                _log.warning("lease_offer_query_failed", error=str(error))
                continue
            for offered, (holder, kinds) in waiting.items():
                if not offered.done() and (AppStatus.should_exit or any((holder, kind) in offers for kind in kinds)):
                    offered.set_result(None)

    def _offers(self, holders: Collection[str]) -> set[tuple[str, str]]:
        with self._database.reading() as session:
            return repository.offers(session, holders, utc_now())
