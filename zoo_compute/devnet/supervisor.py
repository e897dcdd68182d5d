"""Keeps the parts of a devnet running: starts them in order, restarts what crashes, stops them in reverse."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from zoo_compute.base.errors import DevnetError
from zoo_compute.devnet import processes, stack
from zoo_compute.devnet.parts import Part, PartRunner, Status
from zoo_compute.devnet.processes import Identity
from zoo_compute.devnet.state import Started, State, StateDirectory

log = logging.getLogger(__name__)
START_TIMEOUT_SECONDS = 600.0  # some thirty times what it takes on two idle cores
_TRIES_DURING_START = 4
_STEP_SECONDS = 0.1
_STOP_GRACE_SECONDS = 8.0


class Supervisor:
    """Runs the parts of one devnet in this process until told to stop. The caller holds the directory's lock.

    Args:
        state: the record to keep up to date; nothing it names may still be running.
        parts: what to run.
    """

    def __init__(self, directory: StateDirectory, state: State, parts: Sequence[Part]) -> None:
        self._directory = directory
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self.state = state
        self._runners = [PartRunner(part, directory.log(part.name), stack.PROJECT_ROOT) for part in parts]

    def stop(self) -> None:
        """Ask the loop in :meth:`run` to end; may be called from a signal handler."""
        self._stopping.set()

    def run(self, on_ready: Callable[[State], None]) -> None:
        """Start everything, call ``on_ready`` once all parts are healthy, and keep them so until :meth:`stop`.

        Raises:
            DevnetError: a part did not start; everything has been stopped again.
        """
        self._move("starting")
        try:
            self._loop(on_ready)
        except DevnetError as error:
            self._shut_down()
            self._move("failed", failure=str(error))
            raise
        self._shut_down()
        self._move("stopped")

    def _loop(self, on_ready: Callable[[State], None]) -> None:
        while not self._stopping.wait(_STEP_SECONDS):
            ready = {runner.part.name for runner in self._runners if runner.status is Status.READY}
            changed = [runner for runner in self._runners if runner.step(ready)]
            if changed:
                self._record(changed)
            if self.state.phase == "ready":
                continue
            if all(runner.status is Status.READY or runner.part.joins_later for runner in self._runners):
                self.state.start_seconds = round(time.monotonic() - self._began, 1)
                self._move("ready")
                on_ready(self.state)
            else:
                self._check_start()

    def _record(self, changed: Iterable[PartRunner]) -> None:
        for runner in changed:
            part = runner.part
            if runner.identity is not None:
                self.state.parts[part.name] = Started(runner.identity, part.stop_signal, part.layer)
            elif part.name in self.state.parts:
                del self.state.parts[part.name]
            again = f" (exit code {runner.exit_code}; failure {runner.failures})" if runner.failures else ""
            log.info("%-12s %s%s  [%.1f s]", part.name, runner.status.value, again, time.monotonic() - self._began)
        self._directory.save(self.state)

    def _check_start(self) -> None:
        """A part that keeps failing now has a wrong setting; one that crashes later is restarted for ever."""
        for runner in self._runners:
            if runner.failures >= _TRIES_DURING_START:
                raise DevnetError(
                    "devnet-part-failed",
                    f"{runner.part.name} ended {runner.failures} times, last with exit code {runner.exit_code}:\n"
                    f"{runner.last_lines()}",
                    remedy=f"Its whole log is {self._directory.log(runner.part.name)}.",
                )
        if time.monotonic() - self._began > START_TIMEOUT_SECONDS:
            late = [runner.part.name for runner in self._runners if runner.status is not Status.READY]
            raise DevnetError(
                "devnet-start-timeout",
                f"not ready after {START_TIMEOUT_SECONDS:.0f} s: {', '.join(late)}",
                remedy=f"Their logs are in {self._directory.path('logs')}.",
            )

    def _shut_down(self) -> None:
        self._move("stopping")
        _stop_all(self.state.parts.values())
        for runner in self._runners:
            runner.reap()
        self.state.parts = {}

    def _move(self, phase: str, failure: str | None = None) -> None:
        log.info("the stack is %s  [%.1f s]", phase, time.monotonic() - self._began)
        self.state.phase, self.state.failure = phase, failure
        running = phase in ("starting", "ready", "stopping")
        self.state.supervisor = Identity.of(os.getpid()) if running else None
        self._directory.save(self.state)


def _stop_all(parts: Iterable[Started]) -> None:
    running = list(parts)
    for layer in sorted({part.layer for part in running}, reverse=True):
        group = [(part.identity, signal.Signals(part.stop_signal)) for part in running if part.layer == layer]
        processes.stop(group, _STOP_GRACE_SECONDS)


def stop_leftovers(state: State) -> list[str]:
    """Stop what a killed supervisor left running, only processes that it recorded as its own; returns their names."""
    alive = [name for name, part in state.parts.items() if part.identity.process() is not None]
    if alive:
        log.info("stopping what the last run left: %s", ", ".join(alive))
        _stop_all(state.parts.values())
    state.parts = {}
    return alive


def main() -> int:
    """The detached supervisor: ``python -m zoo_compute.devnet.supervisor``; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    directory = StateDirectory(arguments.directory)
    with directory.lock() as held:
        if not held:
            log.error("another supervisor runs %s", directory.root)
            return 1
        try:
            state = directory.load() or State()
            stop_leftovers(state)
            stack.prepare(directory, state)
            supervisor = Supervisor(directory, state, stack.build(directory, state))
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: supervisor.stop())
            supervisor.run(lambda state: log.info("ready after %s s", state.start_seconds))
        except DevnetError as error:
            log.error("%s\n%s", error, error.remedy or "")
            return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
