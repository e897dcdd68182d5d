"""One result for all requests that ask at about the same time."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from fastapi.concurrency import run_in_threadpool

from market.platform.http.services import Services

_FRESH_SECONDS = 1.0
_T = TypeVar("_T")


class SharedResult(Generic[_T]):
    """Result of a slow read, for all callers together: computed at most once a second."""

    def __init__(self, compute: Callable[[Services], _T]) -> None:
        self._compute = compute
        self._running: asyncio.Task[_T] | None = None
        self._fresh_until = 0.0

    async def get(self, services: Services) -> _T:
        """Return the running or last result, or compute it. Raises what the computation does."""
        if self._running is None or (self._running.done() and time.monotonic() >= self._fresh_until):
            self._running = asyncio.create_task(self._run(services))
        return await asyncio.shield(self._running)  # a caller that leaves does not end it for the others

    async def _run(self, services: Services) -> _T:
        try:
            return await run_in_threadpool(self._compute, services)
        finally:
            self._fresh_until = time.monotonic() + _FRESH_SECONDS
