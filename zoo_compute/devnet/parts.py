"""Parts of the stack: start, readiness and restarts of one process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from zoo_compute.devnet.processes import Identity

_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 10.0
_STABLE_AFTER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the stack.

    Attributes:
        name: also the name of its log.
        env: variables in addition to the supervisor's.
        needs: parts that must be ready before it starts.
        ready: readiness check; None for a task, which is ready after exit code 0.
        layer: parts of one layer stop together, higher layers first.
        joins_later: the stack is ready without it.
        away: the part does not start while this file exists.
    """

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    ready: Callable[[], bool] | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    layer: int = 0
    joins_later: bool = False
    away: Path | None = None


class Status(Enum):
    WAITING = "waiting"  # for what it needs, or for its next try
    STARTING = "starting"
    READY = "ready"


class PartRunner:
    """Runs one part. The supervisor's loop calls ``step``, which does not block."""

    def __init__(self, part: Part, log: Path, working_directory: Path) -> None:
        self.part = part
        self.status = Status.WAITING
        self.identity: Identity | None = None
        self.failures = 0  # in a row
        self.exit_code: int | None = None
        self._log = log
        self._working_directory = working_directory
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._next_try_at = 0.0

    def step(self, ready: set[str]) -> bool:
        """Advance the part, given ``ready`` parts. Return True if process or status changed."""
        before = (self.status, self.identity)
        if self._process is not None and self._process.poll() is not None:
            self._ended(self._process.returncode)
        elif self.status is Status.STARTING and self.part.ready is not None and self.part.ready():
            self.status = Status.READY
        if self._should_start(ready):
            self._start()
        return (self.status, self.identity) != before

    def _should_start(self, ready: set[str]) -> bool:
        waiting = self.status is Status.WAITING and self._process is None
        if not waiting or (self.part.away is not None and self.part.away.exists()):
            return False
        return time.monotonic() >= self._next_try_at and ready.issuperset(self.part.needs)

    def _start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self.part.argv,
                cwd=self._working_directory,
                env={**os.environ, **self.part.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops the parts in order
            )
        self.identity = Identity.of(self._process.pid)
        self._started_at = time.monotonic()
        self.status = Status.STARTING

    def _ended(self, exit_code: int) -> None:
        self._process, self.identity, self.exit_code = None, None, exit_code
        if self.part.ready is None and exit_code == 0:
            self.status, self.failures = Status.READY, 0
            return
        if self.status is Status.READY and time.monotonic() - self._started_at > _STABLE_AFTER_SECONDS:
            self.failures = 0
        self.failures += 1
        backoff = min(_FIRST_BACKOFF_SECONDS * 2 ** (self.failures - 1), _LONGEST_BACKOFF_SECONDS)
        self._next_try_at = time.monotonic() + backoff
        self.status = Status.WAITING

    def reap(self) -> None:
        """Collect the exit status of a stopped process."""
        if self._process is not None:
            self._process.wait()
            self._process = None

    def last_lines(self, count: int = 12) -> str:
        """Return the end of the part's log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-count:])
