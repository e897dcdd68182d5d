"""A lease at hand: a thread keeps it alive while another works on it."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from zoo_compute.base.errors import ApiError, Unreachable
from zoo_compute.node.market.calls import Lease, Market

log = logging.getLogger(__name__)


_PROGRESS_SECONDS = 0.5


_BEATS_PER_LEASE = 4


_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 5.0  # between calls that a silent market does not answer


_T = TypeVar("_T")


class LeaseLost(Exception):
    """The market has given the work to somebody else, or needs it no longer."""


class HeldLease:
    """Heartbeats for one lease, from entering to leaving the context."""

    def __init__(self, market: Market, lease: Lease) -> None:
        self.lease = lease
        self._market = market
        self._step = 0
        self._news = threading.Event()
        self._over = threading.Event()
        self._lost: ApiError | None = None
        self._thread = threading.Thread(target=self._beat, name=f"lease-{lease.id[:8]}", daemon=True)

    def __enter__(self) -> "HeldLease":
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._news.set()
        self._thread.join()

    def progress(self, report: dict[str, Any]) -> None:
        """Note the executor's progress (``step``, ``steps``, ``loss``).

        Raises:
            LeaseLost: it is of no use to go on.
        """
        self.check()
        self._step = int(report["step"])
        self._news.set()

    def check(self) -> None:
        """Raise LeaseLost if the lease is known to be lost."""
        if self._lost is not None:
            raise LeaseLost(self._lost.detail)

    def call_until_answered(self, call: Callable[[], _T]) -> _T:
        """What the market answers; it is asked again for as long as it is away: what took hours must not be lost by
        that, nor who said no be taken for silent. A lease that runs out meanwhile is forgiven by the market, and its
        first answer says whether this one was.

        Raises:
            LeaseLost, ApiError: the market does not want it (any more).
            Unreachable: the market does not answer, and this node is told to stop.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except Unreachable as error:
                self.check()
                log.warning("%s lease %s waits for the market: %s", self.lease.kind, self.lease.id, error)
                if self._market.wait_or_stop(pause):
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _beat(self) -> None:
        """Soon after progress, so that followers see it; otherwise often enough to keep the lease."""
        while not self._over.is_set():
            try:
                self._market.keep_lease(self.lease, self._step)
            except ApiError as error:
                self._lost = error
                return
            except Unreachable as error:
                log.warning("lease %s: no heartbeat: %s", self.lease.id, error)
            self._over.wait(_PROGRESS_SECONDS)
            self._news.wait(self.lease.lease_seconds / _BEATS_PER_LEASE)
            self._news.clear()
