"""A node's way to the network: measures what goes over it, and can be held to a speed.

Bodies of requests and answers pass through in small pieces, so that a limit shapes the traffic itself and one large
transfer leaves room for heartbeats between its pieces. Headers are not counted.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

_PIECE_BYTES = 16 * 1024
_TELLING_BYTES = 64 * 1024  # a transfer of less says more of the round trip than of the rate
_REMEMBERED = 16
_BITS_PER_MEGABIT = 1_000_000

BACKGROUND = "zoo.background"
"""Extension of a request whose content is :class:`Background`: no rate is taken from it."""

BACKGROUND_BYTES = 64 * 1024

LONGEST_PAUSE_SECONDS = 5.0
"""What goes in the background sends so many bytes at a time, and while it gives way that often."""


class _Direction:
    """One direction of the link. Safe for threads, which share its speed."""

    def __init__(self, mbps: float | None) -> None:
        self.bytes = 0
        self._seconds_per_byte = 0.0 if mbps is None else 8 / (mbps * _BITS_PER_MEGABIT)
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._transfers: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)

    def pass_on(self, size: int) -> None:
        """Count ``size`` bytes, and wait as long as they take at the limit."""
        with self._lock:
            self.bytes += size
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size * self._seconds_per_byte
            wait = self._free_at - now
        if wait > 0:
            time.sleep(wait)

    def note(self, size: int, seconds: float) -> None:
        """Remember what passed during a transfer that was large enough to tell a rate."""
        with self._lock:
            self._transfers.append((size, seconds))

    @property
    def bytes_per_second(self) -> int | None:
        """Over the last transfers that tell; None before the first."""
        with self._lock:
            size = sum(size for size, _ in self._transfers)
            seconds = sum(seconds for _, seconds in self._transfers)
        return round(size / max(seconds, 1e-6)) if size else None


class Link:
    """Both directions of a node's link.

    Args:
        mbps: limit of each direction in 10**6 bits per second; None is as fast as it goes.
    """

    def __init__(self, mbps: float | None = None) -> None:
        self.up = _Direction(mbps)
        self.down = _Direction(mbps)
        self._giving_way = threading.Condition()
        self._urgent = 0
        self._stopped = False

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """While the block runs, what goes in the background gives way."""
        with self._giving_way:
            self._urgent += 1
        try:
            yield
        finally:
            with self._giving_way:
                self._urgent -= 1
                self._giving_way.notify_all()

    def give_way(self) -> None:
        """Wait while there are urgent transfers, but not so long that a connection would count as dead.

        Raises:
            ConnectionAbortedError: :meth:`stop` was called.
        """
        with self._giving_way:
            self._giving_way.wait_for(lambda: self._stopped or not self._urgent, timeout=LONGEST_PAUSE_SECONDS)
        if self._stopped:
            raise ConnectionAbortedError("this node is stopping")

    def stop(self) -> None:
        """End what goes in the background. May be called from a signal handler."""
        self._stopped = True

    def hooks(self) -> dict[str, list[Callable[..., None]]]:
        """Event hooks for an ``httpx.Client`` whose traffic goes over this link."""
        return {"request": [self._send], "response": [self._receive]}

    def _send(self, request: httpx.Request) -> None:
        if isinstance(request.stream, httpx.SyncByteStream):
            request.stream = _Body(request.stream, self.up)

    def _receive(self, response: httpx.Response) -> None:
        sent = response.request.stream
        gave_way = response.request.extensions.get(BACKGROUND)  # so that its time says nothing of the link
        if isinstance(sent, _Body) and not gave_way:  # what it sent has arrived once there is an answer
            sent.note()
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Body(response.stream, self.down, ends_when_read=True)


class Background:
    """``length`` bytes of a file from ``start`` on, for a request that gives way to urgent transfers over its link.

    Args:
        check: called before each piece; what it raises ends the transfer.
    """

    def __init__(self, path: Path, link: Link, check: Callable[[], None], start: int, length: int) -> None:
        self._path, self._link, self._check = path, link, check
        self._start, self._length = start, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(self._start)
            left = self._length
            while piece := file.read(min(BACKGROUND_BYTES, left)):
                left -= len(piece)
                self._link.give_way()
                self._check()
                yield piece


class _Body(httpx.SyncByteStream):
    """A body that passes over one direction of a link."""

    def __init__(self, stream: httpx.SyncByteStream, direction: _Direction, *, ends_when_read: bool = False) -> None:
        self._stream, self._direction, self._ends_when_read = stream, direction, ends_when_read
        self._begin()

    def __iter__(self) -> Iterator[bytes]:
        self._begin()
        for chunk in self._stream:
            for start in range(0, len(chunk), _PIECE_BYTES):
                piece = chunk[start : start + _PIECE_BYTES]
                self._direction.pass_on(len(piece))
                self._size += len(piece)
                yield piece
        if self._ends_when_read:
            self.note()

    def note(self) -> None:
        """All of it has passed. What other transfers moved meanwhile counts as well: the link gave that much."""
        if self._size >= _TELLING_BYTES:
            self._direction.note(self._direction.bytes - self._before, time.monotonic() - self._started)

    def close(self) -> None:
        self._stream.close()

    def _begin(self) -> None:
        self._size, self._before, self._started = 0, self._direction.bytes, time.monotonic()
