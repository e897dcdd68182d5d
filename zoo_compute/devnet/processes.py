"""Identity, stop and ports of child processes, safe against reused pids."""

import contextlib
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

_CLOCK_SLACK_SECONDS = 1.0  # start times are in ticks since boot, and the boot time may be adjusted
_FIRST_PORT, _LAST_PORT = 20_000, 32_000  # below the ephemeral ports


@dataclass(frozen=True, slots=True)
class Identity:
    """Pid and creation time (Unix seconds) of a process, a pair that is not reused."""

    pid: int
    create_time: float

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """Return the identity of a running process, or None."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    def process(self) -> psutil.Process | None:
        """Return the process, or None if it has ended or is a zombie."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) <= _CLOCK_SLACK_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def stop(processes: Iterable[tuple[Identity, signal.Signals]], grace_seconds: float) -> None:
    """Send each process its signal. Kill it and its descendants after ``grace_seconds``.

    Ended processes are skipped, also if another process has their pid.
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
    """Return a free TCP port of 127.0.0.1 not in ``taken``. Raises RuntimeError: none."""
    avoid = set(taken)
    # Two stacks that start at the same time begin at different ports.
    span = _LAST_PORT - _FIRST_PORT
    start = time.monotonic_ns() % span
    for offset in range(span):
        port = _FIRST_PORT + (start + offset * 7) % span
        if port not in avoid and port_is_free(port):
            return port
    raise RuntimeError(f"no free TCP port from {_FIRST_PORT} to {_LAST_PORT}; stop a process that listens there")


def port_is_free(port: int) -> bool:
    """Return true if a server can listen on ``port`` of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
