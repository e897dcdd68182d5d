"""Periodic tasks of a node.

They run outside the heartbeat thread: one of them can block for minutes, and the market counts a silent node as down.
"""

import errno
import logging
import sqlite3
import time
from collections.abc import Callable

from zoo_compute.base.errors import ZooError

_REPEAT_SECONDS = 300.0

log = logging.getLogger(__name__)

PeriodicTask = Callable[[], None]
"""Does the work that is due. Each task keeps its own interval."""

DISK_REFUSES = (OSError, sqlite3.Error)
"""Errors of a full or failing disk, from files and from the block store's index."""


def is_disk_full(error: Exception) -> bool:
    """Return whether ``error``, one of :data:`DISK_REFUSES`, can mean a full disk."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class ErrorThrottle:
    """Logger of one condition: new texts at once, repeated ones every ``_REPEAT_SECONDS``."""

    def __init__(self) -> None:
        self._last = ""
        self._again_at = 0.0

    def warn(self, what: str) -> None:
        if what != self._last or time.monotonic() >= self._again_at:
            self._last, self._again_at = what, time.monotonic() + _REPEAT_SECONDS
            log.warning("%s", what)


def run_periodic_task(what: str, task: PeriodicTask, throttle: ErrorThrottle) -> None:
    """Run a task once. Expected errors are logged; the next run tries again."""
    try:
        task()
    except (ZooError, *DISK_REFUSES) as error:
        throttle.warn(f"task_failed task={what!r}: {error} {getattr(error, 'remedy', None) or ''}".rstrip())
