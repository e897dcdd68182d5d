"""Several blocks at once: each gateway's threads take the next block that nobody has been asked for.

A gateway with nothing left to take asks for a block that another has kept waiting for longer than it would need itself,
so a slow one delays nothing for long; the first verified answer counts. A gateway that lies, stalls or breaks leaves
the transfer, and its blocks go to the others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType

from zoo_compute.content.peers import FAILURES, Code, Peers
from zoo_protocol.content.cid import Cid
from zoo_protocol.content.unixfs import GetBlock, Leaf

MAX_GATEWAYS = 8
"""Gateways asked at once."""


REQUESTS_PER_GATEWAY = 3
"""So that the way there and back is not waited for between blocks."""


REQUESTS_TO_ONE = 12
"""Where there is one gateway: 300 Mb/s of usual blocks at 80 ms there and back."""


WINDOW = 32
"""Leaves asked for ahead of the one that is read: the memory that a transfer takes is at most so many blocks."""


_MAX_IN_A_ROW: dict[Code, int] = {"lied": 1, "stalled": 1, "unreachable": 3, "absent": 4}
"""Failures in a row with which a gateway leaves, by the last one's kind."""


_ATTEMPTS_AT_ONCE = 2


_SHORTEST_PATIENCE = 0.05  # seconds


Ask = Callable[[str, Cid, Callable[[], bool]], bytes | None]
"""Asks a gateway for a block and verifies it; None if meanwhile the last argument says that nobody wants it."""


class _Wanted:
    """A block, who was asked for it, and when the last request for it began."""

    __slots__ = ("asked", "asking", "block", "cid", "since")

    def __init__(self, cid: Cid) -> None:
        self.cid = cid
        self.asked: set[str] = set()
        self.asking = 0
        self.block: bytes | None = None
        self.since = 0.0


class Transfer:
    """Fetches blocks from ``peers`` while its context is entered.

    Args:
        ask: how one gateway is asked.
        last_resort: finds a block that no gateway here gave, or raises why there is none.
    """

    def __init__(self, peers: Peers, ask: Ask, last_resort: GetBlock) -> None:
        self._peers = peers
        self._ask = ask
        self._last_resort = last_resort
        self._changed = threading.Condition()
        self._wanted: list[_Wanted] = []
        self._present = set((peers.in_good_standing() or peers.gateways)[:MAX_GATEWAYS])
        self._over = False

    def __enter__(self) -> "Transfer":
        requests = REQUESTS_PER_GATEWAY if len(self._present) > 1 else REQUESTS_TO_ONE
        for gateway in self._present:
            for number in range(requests):
                # A daemon: one that waits for a silent gateway must not hold up the end of the transfer or process.
                name = f"blocks-{gateway}-{number}"
                threading.Thread(target=self._serve, args=(gateway,), name=name, daemon=True).start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def get(self, cid: Cid) -> bytes:
        """One block, before all others."""
        return self._take(self._want(cid, first=True))

    def blocks(self, leaves: Iterable[Leaf], have: Callable[[Leaf], bytes | None]) -> Iterator[tuple[Leaf, bytes]]:
        """The leaves with their blocks, in order; what ``have`` returns is not asked for."""
        ahead: deque[tuple[Leaf, bytes | _Wanted]] = deque()
        for leaf in leaves:
            block = have(leaf)
            ahead.append((leaf, self._want(leaf.cid) if block is None else block))
            if len(ahead) == WINDOW:
                yield self._first(ahead)
        while ahead:
            yield self._first(ahead)

    def _first(self, ahead: deque[tuple[Leaf, bytes | _Wanted]]) -> tuple[Leaf, bytes]:
        leaf, block = ahead.popleft()
        return leaf, self._take(block) if isinstance(block, _Wanted) else block

    def _want(self, cid: Cid, *, first: bool = False) -> _Wanted:
        wanted = _Wanted(cid)
        with self._changed:
            self._wanted.insert(0 if first else len(self._wanted), wanted)
            self._changed.notify_all()
        return wanted

    def _take(self, wanted: _Wanted) -> bytes:
        """The block once it is here; from the last resort once everybody present has failed."""
        with self._changed:
            self._changed.wait_for(lambda: wanted.block is not None or not self._hope(wanted))
            self._wanted.remove(wanted)
        return wanted.block if wanted.block is not None else self._last_resort(wanted.cid)

    def _hope(self, wanted: _Wanted) -> bool:
        return wanted.asking > 0 or not self._present <= wanted.asked

    def _serve(self, gateway: str) -> None:
        """One thread: asks ``gateway`` for block after block until all is done or it leaves."""
        failed, pace = 0, 0.0
        while (wanted := self._next(gateway, 2 * pace)) is not None:
            started = time.monotonic()
            block, stays = None, False
            try:
                block = self._ask(gateway, wanted.cid, partial(self._useless, wanted))
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

    def _useless(self, wanted: _Wanted) -> bool:
        return self._over or wanted.block is not None

    def _next(self, gateway: str, patience: float) -> _Wanted | None:
        """A block to ask ``gateway`` for, once there is one; None if it has left or all is over."""
        patience = max(patience, _SHORTEST_PATIENCE)
        with self._changed:
            while not self._over and gateway in self._present:
                now = time.monotonic()
                mine = [one for one in self._wanted if one.block is None and gateway not in one.asked]
                found = next((one for one in mine if not one.asking), None) or next(
                    (one for one in mine if one.asking < _ATTEMPTS_AT_ONCE and one.since + patience <= now), None
                )
                if found is not None:
                    found.asked.add(gateway)
                    found.asking += 1
                    found.since = now
                    return found
                self._changed.wait(patience if mine else None)
        return None
