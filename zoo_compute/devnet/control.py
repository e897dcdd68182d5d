"""Start, describe, stop and remove a devnet."""

import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from zoo_compute.base.errors import DevnetError
from zoo_compute.devnet import processes, stack
from zoo_compute.devnet.state import Options, State, StateDirectory
from zoo_compute.devnet.supervisor import START_TIMEOUT_SECONDS, stop_leftovers

_STOP_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_DEFAULT_OPTIONS = Options()


def up(directory: StateDirectory, options: Options | None = None) -> dict[str, Any]:
    """Start the stack or use a running one; wait until it is healthy; return its info.

    Args:
        options: None: those of the last run.

    Raises:
        DevnetError: a part did not start, or the directory has a devnet with other options.
    """
    directory.create()
    state = directory.load()
    if state is None:
        state = State(options=options or _DEFAULT_OPTIONS)
        directory.save(state)
    elif options is not None and state.options != options:
        raise DevnetError(
            "devnet-options-differ",
            f"{directory.root} has a devnet with {state.options}; expected {options}",
            remedy="Omit the options to continue with it, or run: zoo-compute devnet reset",
        )
    if not is_running(state):
        _wait_for_start(directory, _spawn_supervisor(directory))
    return info(directory)


def _spawn_supervisor(directory: StateDirectory) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "zoo_compute.devnet.supervisor", "--directory", str(directory.root)]
    with open(directory.log("supervisor"), "wb") as log:
        return subprocess.Popen(
            argv, cwd=stack.PROJECT_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _wait_for_start(directory: StateDirectory, supervisor: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS + _STOP_TIMEOUT_SECONDS  # the supervisor's timeout is shorter
    while time.monotonic() < deadline:
        state = directory.load()
        if state is not None and is_running(state):
            return
        if supervisor.poll() is not None:
            raise DevnetError(
                "devnet-start-failed",
                f"the stack did not start:\n{directory.log('supervisor').read_text(errors='replace')}",
                remedy=f"The logs of all parts are in {directory.path('logs')}.",
            )
        time.sleep(_POLL_SECONDS)
    raise DevnetError("devnet-start-timeout", f"the supervisor hangs; see {directory.log('supervisor')}")


def is_running(state: State | None) -> bool:
    """Return true if the supervisor runs and all parts were healthy."""
    return state is not None and state.is_supervised() and state.phase == "ready"


def info(directory: StateDirectory) -> dict[str, Any]:
    """Return addresses, development keys and processes of a running stack.

    Raises:
        DevnetError: none is running here.
    """
    state = directory.load()
    if state is None or not is_running(state):
        phase = "there is none" if state is None else f"its state is {state.phase!r}"
        raise DevnetError(
            "devnet-not-running",
            f"no devnet is running in {directory.root}: {phase}",
            remedy="Start one with: zoo-compute devnet up --detach",
        )
    return stack.info(directory, state)


def down(directory: StateDirectory) -> bool:
    """Stop all parts in reverse order. Return True if any was running."""
    state = directory.load()
    if state is None:
        return False
    supervised = state.is_supervised()
    if state.supervisor is not None:
        processes.stop([(state.supervisor, signal.SIGTERM)], _STOP_TIMEOUT_SECONDS)
    state = directory.load() or state
    left = stop_leftovers(state)
    state.phase, state.supervisor = "stopped", None
    directory.save(state)
    return supervised or bool(left)


def reset(directory: StateDirectory) -> None:
    """Remove a stopped devnet with all its data.

    Raises:
        DevnetError: it is running, or the directory is not a devnet's.
    """
    if not directory.root.exists():
        return
    state = directory.load()
    if state is None and any(directory.root.iterdir()):
        raise DevnetError("devnet-unknown-directory", f"{directory.root} is not a devnet's directory; it stays")
    if state is not None and state.is_supervised():
        raise DevnetError(
            "devnet-running", f"the devnet in {directory.root} is running", remedy="Run: zoo-compute devnet down"
        )
    if state is not None:
        stop_leftovers(state)
    shutil.rmtree(directory.root)
