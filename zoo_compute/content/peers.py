"""Gateways and their faults.

A gateway with a fault is avoided for a period, and the fault is logged. It remains the last resort: every answer is
verified.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import httpx

from zoo_compute.content.blockstore import BlockNotFound
from zoo_protocol.content.cid import ContentError

log = logging.getLogger(__name__)
Code = Literal["lied", "stalled", "unreachable", "absent"]

AVOIDED_SECONDS: dict[Code, float] = {"lied": 600.0, "stalled": 30.0, "unreachable": 30.0, "absent": 0.0}
"""Period in which a gateway is only the last resort."""

MAX_FAULTS = 256


class Stalled(httpx.HTTPError):
    """A block exceeded its timeout."""


FAILURES = (BlockNotFound, ContentError, httpx.HTTPError)
"""Errors of a request to a gateway."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a gateway: ``lied`` (other bytes), ``stalled``, ``unreachable``, ``absent``."""

    gateway: str
    code: Code
    detail: str


class Peers:
    """Gateways with their faults. Safe for threads."""

    def __init__(self, gateways: Sequence[str]) -> None:
        self.gateways = list(dict.fromkeys(gateway.rstrip("/") for gateway in gateways))
        self._faults: deque[Fault] = deque(maxlen=MAX_FAULTS)
        self._avoided_until: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def faults(self) -> list[Fault]:
        with self._lock:
            return list(self._faults)

    def report(self, gateway: str, error: Exception) -> Fault:
        """Record a failure, one of ``FAILURES``, and avoid the gateway for its period."""
        fault = Fault(gateway, _code(error), f"{type(error).__name__}: {error}")
        log.log(
            logging.INFO if fault.code == "absent" else logging.WARNING,
            "gateway_fault gateway=%s code=%s detail=%s",
            gateway,
            fault.code,
            fault.detail,
        )
        with self._lock:
            self._faults.append(fault)
            until = time.monotonic() + AVOIDED_SECONDS[fault.code]
            self._avoided_until[gateway] = max(until, self._avoided_until.get(gateway, 0.0))
        return fault

    def available(self) -> list[str]:
        """Return the gateways that are not avoided now, in order."""
        now = time.monotonic()
        with self._lock:
            return [gateway for gateway in self.gateways if self._avoided_until.get(gateway, 0.0) <= now]

    def by_preference(self) -> list[str]:
        """Return all gateways; those that are avoided come last."""
        good = self.available()
        return good + [gateway for gateway in self.gateways if gateway not in good]


def _code(error: Exception) -> Code:
    if isinstance(error, BlockNotFound):
        return "absent"
    if isinstance(error, ContentError):
        return "lied"
    return "stalled" if isinstance(error, httpx.TimeoutException | Stalled) else "unreachable"
