"""What ``zoo-compute devnet`` does: start, describe, stop and remove an embedded stack."""

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
    """Start the stack in the background and wait until every part is healthy; one that runs already is used.

    Args:
        options: None continues with those of the last run.

    Returns:
        What :func:`info` returns.

    Raises:
        DevnetError: a part did not start, or the directory holds a devnet with other options.
    """
    directory.create()
    state = directory.load()
    if state is None:
        state = State(options=options or _DEFAULT_OPTIONS)
        directory.save(state)
    elif options is not None and state.options != options:
        raise DevnetError(
            "devnet-options-differ",
            f"{directory.root} holds a devnet with {state.options}, but {options} is asked for",
            remedy="Leave the options away to continue with it, or run: zoo-compute devnet reset",
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
    deadline = time.monotonic() + START_TIMEOUT_SECONDS + _STOP_TIMEOUT_SECONDS  # the supervisor gives up first
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
    """Whether the stack is up: its supervisor lives and has seen every part healthy."""
    lives = state is not None and state.supervisor is not None and state.supervisor.process() is not None
    return lives and state is not None and state.phase == "ready"


def info(directory: StateDirectory) -> dict[str, Any]:
    """Addresses, development keys and processes of a running stack.

    Raises:
        DevnetError: if none is running here.
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
    """Stop everything in reverse order, also when its supervisor is gone; returns whether anything was running."""
    state = directory.load()
    if state is None:
        return False
    supervisor = state.supervisor
    supervised = supervisor is not None and supervisor.process() is not None
    if supervisor is not None:
        processes.stop([(supervisor, signal.SIGTERM)], _STOP_TIMEOUT_SECONDS)
    state = directory.load() or state
    left = stop_leftovers(state)
    state.phase, state.supervisor = "stopped", None
    directory.save(state)
    return supervised or bool(left)


def reset(directory: StateDirectory) -> None:
    """Remove a stopped devnet with all its data.

    Raises:
        DevnetError: if it is running, or the directory is not a devnet's.
    """
    if not directory.root.exists():
        return
    state = directory.load()
    if state is None and any(directory.root.iterdir()):
        raise DevnetError("devnet-unknown-directory", f"{directory.root} holds no devnet, so it is not removed")
    if state is not None and state.supervisor is not None and state.supervisor.process() is not None:
        raise DevnetError(
            "devnet-running", f"the devnet in {directory.root} is running", remedy="Run: zoo-compute devnet down"
        )
    if state is not None:
        stop_leftovers(state)
    shutil.rmtree(directory.root)
