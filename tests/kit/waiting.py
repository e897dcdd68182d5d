"""Waits for a condition, with a deadline that a busy machine meets."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

DEADLINE_SECONDS = 120.0
_POLL_SECONDS = 0.02
_never = threading.Event()

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found], what: Any = "the condition", *, seconds: float = DEADLINE_SECONDS
) -> Found:
    """Return the first true value of ``condition``, polled for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not met within {seconds:g} s: {what() if callable(what) else what}")
        delay(_POLL_SECONDS)
    return found


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; it may end during the call, and a zombie does not run."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def drain(worker: Any) -> None:
    """Let ``worker`` step until nothing is due."""
    while worker.step():
        pass


def delay(seconds: float) -> None:
    """Wait on the real clock."""
    _never.wait(seconds)
