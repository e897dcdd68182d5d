"""Supervisor of a devnet: starts parts in order, restarts them, stops in reverse."""

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
START_TIMEOUT_SECONDS = 600.0  # about thirty times the start on two idle cores
_TRIES_DURING_START = 4
_STEP_SECONDS = 0.1
_STOP_GRACE_SECONDS = 8.0


class Supervisor:
    """Runs a devnet's parts in this process until :meth:`stop`, under the lock.

    Args:
        state: updated during the run; its recorded processes must have ended.
    """

    def __init__(self, directory: StateDirectory, state: State, parts: Sequence[Part]) -> None:
        self._directory = directory
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self.state = state
        self._runners = [PartRunner(part, directory.log(part.name), stack.PROJECT_ROOT) for part in parts]

    def stop(self) -> None:
        """End the loop in :meth:`run`. Safe in a signal handler."""
        self._stopping.set()

    def run(self, on_ready: Callable[[State], None]) -> None:
        """Start all parts, call ``on_ready`` once healthy, supervise until :meth:`stop`.

        Raises:
            DevnetError: a part did not start; all parts are stopped again.
        """
        self._set_phase("starting")
        try:
            self._loop(on_ready)
        except DevnetError as error:
            self._shut_down()
            self._set_phase("failed", failure=str(error))
            raise
        self._shut_down()
        self._set_phase("stopped")

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
                self._set_phase("ready")
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
            failure = f" (exit code {runner.exit_code}; failure {runner.failures})" if runner.failures else ""
            log.info("%-12s %s%s  [%.1f s]", part.name, runner.status.value, failure, time.monotonic() - self._began)
        self._directory.save(self.state)

    def _check_start(self) -> None:
        """Fail on repeated failures during the start; after it, a crashed part is always restarted."""
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
        self._set_phase("stopping")
        _stop_all(self.state.parts.values())
        for runner in self._runners:
            runner.reap()
        self.state.parts = {}

    def _set_phase(self, phase: str, failure: str | None = None) -> None:
        log.info("stack_phase phase=%s seconds=%.1f", phase, time.monotonic() - self._began)
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
    """Stop the recorded processes of a killed supervisor. Return their names."""
    alive = [name for name, part in state.parts.items() if part.identity.process() is not None]
    if alive:
        log.info("leftovers_stopped parts=%s", ",".join(alive))
        _stop_all(state.parts.values())
    state.parts = {}
    return alive


def main() -> int:
    """Run ``python -m zoo_compute.devnet.supervisor``. Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    directory = StateDirectory(arguments.directory)
    with directory.lock() as held:
        if not held:
            log.error("devnet_locked directory=%s", directory.root)
            return 1
        try:
            state = directory.load() or State()
            stop_leftovers(state)
            stack.prepare(directory, state)
            supervisor = Supervisor(directory, state, stack.build(directory, state))
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: supervisor.stop())
            supervisor.run(lambda state: log.info("stack_ready seconds=%s", state.start_seconds))
        except DevnetError as error:
            log.error("%s\n%s", error, error.remedy or "")
            return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
