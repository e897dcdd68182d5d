"""Time and traffic of a unit, reported with the result; not verified."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zoo_compute.base.link import Link


class UnitResourceUsage:
    """Usage of one unit since construction, with other leases' traffic of that time."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._up, self._down = link.up.bytes, link.down.bytes
        self._transfer_seconds = 0.0

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Count the block as transfer time, and give its transfers precedence over background ones."""
        started = time.monotonic()
        try:
            with self._link.urgent():
                yield
        finally:
            self._transfer_seconds += time.monotonic() - started

    def report(self, compute_seconds: float) -> dict[str, Any]:
        """Return times in ms, bytes each way, and last rates in bytes per second, or None."""
        return {
            "compute_ms": round(1000 * compute_seconds),
            "transfer_ms": round(1000 * self._transfer_seconds),
            "bytes_up": self._link.up.bytes - self._up,
            "bytes_down": self._link.down.bytes - self._down,
            "up_bytes_per_second": self._link.up.bytes_per_second,
            "down_bytes_per_second": self._link.down.bytes_per_second,
        }
