"""Gateways with their faults, and parallel block transfers from them.

A gateway with a fault is avoided for a period, and the fault is logged. It remains the last resort: every answer is
verified.

In a transfer, threads of each gateway take the next block without a request. An idle gateway also requests a block that
another one has delayed for longer than it would need itself. The first verified answer counts. A gateway with a fault
leaves the transfer, and its blocks go to the others.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import httpx

from zoo_compute.content.blockstore import BlockNotFound
from zoo_protocol.content.cid import Cid, ContentError
from zoo_protocol.content.unixfs import GetBlock, Leaf

log = logging.getLogger(__name__)
Code = Literal["lied", "stalled", "unreachable", "absent"]

AVOIDED_SECONDS: dict[Code, float] = {"lied": 600.0, "stalled": 30.0, "unreachable": 30.0, "absent": 0.0}
"""Period in which a gateway is only the last resort."""

MAX_FAULTS = 256

MAX_GATEWAYS = 8
"""Maximum number of gateways per transfer."""

REQUESTS_PER_GATEWAY = 3
"""Parallel requests per gateway, which hide the round trip."""

REQUESTS_TO_ONE = 12
"""Parallel requests to a single gateway: 300 Mb/s of typical blocks at a round trip of 80 ms."""

WINDOW = 32
"""Leaves requested ahead of the reader, which bounds the memory of a transfer in blocks."""

_MAX_IN_A_ROW: dict[Code, int] = {"lied": 1, "stalled": 1, "unreachable": 3, "absent": 4}
"""Consecutive failures after which a gateway leaves, by the last one's code."""

_PARALLEL_ATTEMPTS = 2
_MIN_PATIENCE_SECONDS = 0.05

Ask = Callable[[str, Cid, Callable[[], bool]], bytes | None]
"""Requests a block from a gateway and verifies it; None if the last argument reports it as useless."""


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
        level = logging.INFO if fault.code == "absent" else logging.WARNING
        log.log(level, "gateway_fault gateway=%s code=%s detail=%s", gateway, fault.code, fault.detail)
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


@dataclass(eq=False, slots=True)
class _Wanted:
    """Requested block, the gateways that were asked, and the start of the last request."""

    cid: Cid
    asked: set[str] = field(default_factory=set)
    asking: int = 0
    block: bytes | None = None
    since: float = 0.0


class Transfer:
    """Transfer of blocks from ``peers`` while its context is entered.

    Args:
        ask: requests a block from one gateway.
        last_resort: returns a block that no gateway of the transfer gave, or raises.
    """

    def __init__(self, peers: Peers, ask: Ask, last_resort: GetBlock) -> None:
        self._peers = peers
        self._ask = ask
        self._last_resort = last_resort
        self._changed = threading.Condition()
        self._wanted: list[_Wanted] = []
        self._present = set((peers.available() or peers.gateways)[:MAX_GATEWAYS])
        self._over = False

    def __enter__(self) -> "Transfer":
        requests = REQUESTS_PER_GATEWAY if len(self._present) > 1 else REQUESTS_TO_ONE
        for gateway in self._present:
            for number in range(requests):
                # Daemon threads: one that waits for a silent gateway must not delay the end of the process.
                name = f"blocks-{gateway}-{number}"
                threading.Thread(target=self._serve, args=(gateway,), name=name, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def get(self, cid: Cid) -> bytes:
        """Return one block, with precedence over all others."""
        return self._await_block(self._request(cid, first=True))

    def blocks(self, leaves: Iterable[Leaf], have: Callable[[Leaf], bytes | None]) -> Iterator[tuple[Leaf, bytes]]:
        """Yield the leaves with their blocks, in order; blocks from ``have`` are not requested."""
        ahead: deque[tuple[Leaf, bytes | _Wanted]] = deque()
        for leaf in leaves:
            block = have(leaf)
            ahead.append((leaf, self._request(leaf.cid) if block is None else block))
            if len(ahead) == WINDOW:
                yield self._first(ahead)
        while ahead:
            yield self._first(ahead)

    def _first(self, ahead: deque[tuple[Leaf, bytes | _Wanted]]) -> tuple[Leaf, bytes]:
        leaf, block = ahead.popleft()
        return leaf, self._await_block(block) if isinstance(block, _Wanted) else block

    def _request(self, cid: Cid, *, first: bool = False) -> _Wanted:
        wanted = _Wanted(cid)
        with self._changed:
            self._wanted.insert(0 if first else len(self._wanted), wanted)
            self._changed.notify_all()
        return wanted

    def _await_block(self, wanted: _Wanted) -> bytes:
        """Wait for the block; use the last resort once all present gateways have failed."""
        with self._changed:
            self._changed.wait_for(lambda: wanted.block is not None or not self._can_succeed(wanted))
            self._wanted.remove(wanted)
        return wanted.block if wanted.block is not None else self._last_resort(wanted.cid)

    def _can_succeed(self, wanted: _Wanted) -> bool:
        return wanted.asking > 0 or not self._present <= wanted.asked

    def _serve(self, gateway: str) -> None:
        """Run one thread of ``gateway`` until the transfer is over or the gateway leaves."""
        failed, pace = 0, 0.0
        while (wanted := self._next(gateway, 2 * pace)) is not None:
            started = time.monotonic()
            block, stays = None, False
            try:
                block = self._ask(gateway, wanted.cid, partial(self._is_obsolete, wanted))
                stays = True
                if block is not None:
                    failed, pace = 0, time.monotonic() - started
            except FAILURES as error:
                failed += 1
                stays = failed < _MAX_IN_A_ROW[self._peers.report(gateway, error).code]
            finally:
                with self._changed:
                    wanted.asking -= 1
                    wanted.block = wanted.block or block
                    if not stays:
                        self._present.discard(gateway)
                    self._changed.notify_all()

    def _is_obsolete(self, wanted: _Wanted) -> bool:
        return self._over or wanted.block is not None

    def _next(self, gateway: str, patience: float) -> _Wanted | None:
        """Wait for a block to request from ``gateway``; None if it has left or the transfer is over."""
        patience = max(patience, _MIN_PATIENCE_SECONDS)
        with self._changed:
            while not self._over and gateway in self._present:
                now = time.monotonic()
                mine = [one for one in self._wanted if one.block is None and gateway not in one.asked]
                found = next((one for one in mine if not one.asking), None) or next(
                    (one for one in mine if one.asking < _PARALLEL_ATTEMPTS and one.since + patience <= now), None
                )
                if found is not None:
                    found.asked.add(gateway)
                    found.asking += 1
                    found.since = now
                    return found
                self._changed.wait(patience if mine else None)
        return None
