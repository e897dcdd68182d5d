"""Processes that we started, told apart from strangers that later got the same pid."""

import contextlib
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

_CLOCK_SLACK_SECONDS = 1.0  # the kernel keeps start times in ticks, and the boot time they count from may be adjusted
_FIRST_PORT, _LAST_PORT = 20_000, 32_000  # below the range that outgoing connections take their ports from


@dataclass(frozen=True, slots=True)
class Identity:
    """A process by pid and creation time (Unix seconds): the pair that is not reused."""

    pid: int
    create_time: float

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """The identity of a live process, or None when it is gone."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    def process(self) -> psutil.Process | None:
        """The process, if it is still the one that was started and not a zombie."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) <= _CLOCK_SLACK_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def stop(processes: Iterable[tuple[Identity, signal.Signals]], grace_seconds: float) -> None:
    """Ask each process to end with its signal; kill it and its descendants after the grace.

    Processes that are gone, or whose pid now belongs to somebody else, are left alone.
    """
    leaders = [(found, number) for identity, number in processes if (found := identity.process()) is not None]
    family = [leader for leader, _ in leaders]
    for leader, number in leaders:
        with contextlib.suppress(psutil.NoSuchProcess):
            family += leader.children(recursive=True)
            leader.send_signal(number)
    _, alive = psutil.wait_procs(family, timeout=grace_seconds)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=2)


def free_port(taken: Iterable[int] = ()) -> int:
    """A TCP port of 127.0.0.1 that nobody listens on and that is not in ``taken``.

    Raises:
        RuntimeError: if none is free.
    """
    avoid = set(taken)
    # Start at a point that differs between processes, so that two stacks starting together rarely meet.
    span = _LAST_PORT - _FIRST_PORT
    start = time.monotonic_ns() % span
    for offset in range(span):
        port = _FIRST_PORT + (start + offset * 7) % span
        if port not in avoid and port_is_free(port):
            return port
    raise RuntimeError(f"no free TCP port between {_FIRST_PORT} and {_LAST_PORT}; stop something that listens there")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
