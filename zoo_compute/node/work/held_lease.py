"""Lease heartbeats in a thread while another thread does the work."""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from zoo_compute.base.errors import ApiError, Unreachable
from zoo_compute.node.market.calls import Lease, Market

log = logging.getLogger(__name__)
_PROGRESS_SECONDS = 0.5
_BEATS_PER_LEASE = 4
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 5.0  # between repeated calls during an outage of the market
_T = TypeVar("_T")


class LeaseLost(Exception):
    """The lease expired, was given to another node, or its result is not needed."""


class HeldLease:
    """Heartbeats of one lease, for the duration of the context."""

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

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._news.set()
        self._thread.join()

    def progress(self, report: dict[str, Any]) -> None:
        """Record the executor's progress (``step``, ``steps``, ``loss``). Raises LeaseLost."""
        self.check()
        self._step = int(report["step"])
        self._news.set()

    def check(self) -> None:
        """Raise LeaseLost if the lease is known to be lost."""
        if self._lost is not None:
            raise LeaseLost(self._lost.detail)

    def call_until_answered(self, call: Callable[[], _T]) -> _T:
        """Call the market and retry until it answers, the lease is lost, or the node stops.

        The market extends leases that expire during its own outage.

        Raises:
            LeaseLost, ApiError: the market does not accept the call.
            Unreachable: the node is stopping and the market does not answer.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except Unreachable as error:
                self.check()
                log.warning("market_unreachable kind=%s lease=%s error=%s", self.lease.kind, self.lease.id, error)
                if self._market.wait_or_stop(pause):
                    raise
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _beat(self) -> None:
        """Send heartbeats soon after progress, and otherwise often enough to keep the lease."""
        while not self._over.is_set():
            try:
                self._market.keep_lease(self.lease, self._step)
            except ApiError as error:
                self._lost = error
                return
            except Unreachable as error:
                log.warning("lease_heartbeat_failed lease=%s error=%s", self.lease.id, error)
            self._over.wait(_PROGRESS_SECONDS)
            self._news.wait(self.lease.lease_seconds / _BEATS_PER_LEASE)
            self._news.clear()
