"""The gateways that content is asked of, and what each of them did wrong.

A gateway that falsifies, stalls or breaks is left alone for a while, and the reason is kept and logged. It is never
given up for good: where no other is left it is asked again, since whatever it answers is verified.
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
"""For how long a gateway is asked only where no other is left."""


FAULTS_KEPT = 256


class Stalled(httpx.HTTPError):
    """A block did not arrive in the time that it may take."""


FAILURES = (BlockNotFound, ContentError, httpx.HTTPError)
"""What asking a gateway can raise."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a gateway did: ``lied`` (the bytes are not the block), ``stalled``, ``unreachable`` or ``absent``."""

    gateway: str
    code: Code
    detail: str


class Peers:
    """Gateways and their standing. Safe for threads."""

    def __init__(self, gateways: Sequence[str]) -> None:
        self.gateways = list(dict.fromkeys(gateway.rstrip("/") for gateway in gateways))
        self._faults: deque[Fault] = deque(maxlen=FAULTS_KEPT)
        self._avoided_until: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def faults(self) -> list[Fault]:
        """The last faults, oldest first."""
        with self._lock:
            return list(self._faults)

    def report(self, gateway: str, error: Exception) -> Fault:
        """Note a failure, one of ``FAILURES``, and avoid the gateway for as long as it deserves."""
        fault = Fault(gateway, _code(error), f"{type(error).__name__}: {error}")
        log.log(logging.INFO if fault.code == "absent" else logging.WARNING, "gateway %s %s: %s", *_words(fault))
        with self._lock:
            self._faults.append(fault)
            until = time.monotonic() + AVOIDED_SECONDS[fault.code]
            self._avoided_until[gateway] = max(until, self._avoided_until.get(gateway, 0.0))
        return fault

    def in_good_standing(self) -> list[str]:
        """The gateways that are not avoided now, in their order."""
        now = time.monotonic()
        with self._lock:
            return [gateway for gateway in self.gateways if self._avoided_until.get(gateway, 0.0) <= now]

    def in_order(self) -> list[str]:
        """All gateways: those in good standing, then the others as a last resort."""
        good = self.in_good_standing()
        return good + [gateway for gateway in self.gateways if gateway not in good]


def _code(error: Exception) -> Code:
    if isinstance(error, BlockNotFound):
        return "absent"
    if isinstance(error, ContentError):
        return "lied"
    return "stalled" if isinstance(error, httpx.TimeoutException | Stalled) else "unreachable"


def _words(fault: Fault) -> tuple[str, str, str]:
    return fault.gateway, fault.code, fault.detail
