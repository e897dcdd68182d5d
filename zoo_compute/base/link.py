"""Measurement and rate limit of a node's network link.

Bodies pass in pieces of 16 KiB. So heartbeats can pass between the pieces of a large transfer. Headers do not count.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

_PIECE_BYTES = 16 * 1024
_MIN_SAMPLE_BYTES = 64 * 1024  # a smaller transfer measures the round trip, not the rate
_MAX_SAMPLES = 16
_BITS_PER_MEGABIT = 1_000_000
BACKGROUND = "zoo.background"  # extension of a request with :class:`Background` content: it gives no rate sample
BACKGROUND_BYTES = 64 * 1024  # a piece of a background transfer
LONGEST_PAUSE_SECONDS = 5.0  # between two pieces, so that the connection stays open


class _Direction:
    """One direction of the link. Threads share it and its rate limit."""

    def __init__(self, mbps: float | None) -> None:
        self.bytes = 0
        self._seconds_per_byte = 0.0 if mbps is None else 8 / (mbps * _BITS_PER_MEGABIT)
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._transfers: deque[tuple[int, float]] = deque(maxlen=_MAX_SAMPLES)

    def throttle(self, size: int) -> None:
        """Count ``size`` bytes and sleep for their transfer time at the limit."""
        with self._lock:
            self.bytes += size
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size * self._seconds_per_byte
            wait = self._free_at - now
        if wait > 0:
            time.sleep(wait)

    def add_sample(self, size: int, seconds: float) -> None:
        with self._lock:
            self._transfers.append((size, seconds))

    @property
    def bytes_per_second(self) -> int | None:
        """Mean rate of the last samples; None before the first."""
        with self._lock:
            size = sum(size for size, _ in self._transfers)
            seconds = sum(seconds for _, seconds in self._transfers)
        return round(size / max(seconds, 1e-6)) if size else None


class Link:
    """Both directions of a node's link.

    Args:
        mbps: limit of each direction in 10**6 bits per second; None: no limit.
    """

    def __init__(self, mbps: float | None = None) -> None:
        self.up = _Direction(mbps)
        self.down = _Direction(mbps)
        self._yielding = threading.Condition()
        self._urgent = 0
        self._stopped = False

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Pause background transfers while the block runs."""
        with self._yielding:
            self._urgent += 1
        try:
            yield
        finally:
            with self._yielding:
                self._urgent -= 1
                self._yielding.notify_all()

    def yield_to_urgent(self) -> None:
        """Wait while urgent transfers run, at most ``LONGEST_PAUSE_SECONDS``.

        Raises:
            ConnectionAbortedError: :meth:`stop` was called.
        """
        with self._yielding:
            self._yielding.wait_for(lambda: self._stopped or not self._urgent, timeout=LONGEST_PAUSE_SECONDS)
        if self._stopped:
            raise ConnectionAbortedError("this node is stopping")

    def stop(self) -> None:
        """End background transfers. Safe in a signal handler."""
        self._stopped = True

    def hooks(self) -> dict[str, list[Callable[..., None]]]:
        """Return the event hooks for an ``httpx.Client`` on this link."""
        return {"request": [self._send], "response": [self._receive]}

    def _send(self, request: httpx.Request) -> None:
        if isinstance(request.stream, httpx.SyncByteStream):
            request.stream = _Body(request.stream, self.up)

    def _receive(self, response: httpx.Response) -> None:
        sent = response.request.stream
        is_background = response.request.extensions.get(BACKGROUND)  # its time includes pauses
        if isinstance(sent, _Body) and not is_background:  # the body has arrived once there is an answer
            sent.add_sample()
        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Body(response.stream, self.down, ends_when_read=True)


class Background:
    """``length`` bytes from ``start`` as a body that pauses for urgent transfers.

    Args:
        check: called before each piece; its exception ends the transfer.
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
                self._link.yield_to_urgent()
                self._check()
                yield piece


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, direction: _Direction, *, ends_when_read: bool = False) -> None:
        self._stream, self._direction, self._ends_when_read = stream, direction, ends_when_read
        self._begin()

    def __iter__(self) -> Iterator[bytes]:
        self._begin()
        for chunk in self._stream:
            for start in range(0, len(chunk), _PIECE_BYTES):
                piece = chunk[start : start + _PIECE_BYTES]
                self._direction.throttle(len(piece))
                self._size += len(piece)
                yield piece
        if self._ends_when_read:
            self.add_sample()

    def add_sample(self) -> None:
        """Record a sample of the link's rate, including the bytes of transfers at the same time."""
        if self._size >= _MIN_SAMPLE_BYTES:
            self._direction.add_sample(self._direction.bytes - self._before, time.monotonic() - self._started)

    def close(self) -> None:
        self._stream.close()

    def _begin(self) -> None:
        self._size, self._before, self._started = 0, self._direction.bytes, time.monotonic()
