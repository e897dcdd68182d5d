"""Deduplication of repeating messages: beat's, and those that the sweep sends per job.

Such messages queue up while the workers are busy. A limit on their age would starve the same tasks each time. A message
is therefore skipped only if its task has begun since it was sent. The queue is never longer than one round of messages.
"""

import time
from typing import Any

from celery import Task

SENT_AT = "sent_at"
"""Header with the Unix time of the sending, by the sender's clock."""

RETENTION_SECONDS = 60
"""Lifetime of a message without a worker; newer messages replace it."""

_MAX_ENTRIES = 10_000


def mark(headers: dict[str, Any], **_: object) -> None:
    """Mark a message as repeating; a receiver of ``before_task_publish``."""
    headers[SENT_AT] = time.time()


def repeated() -> dict[str, Any]:
    """Return the options of a single repeating message."""
    return {"headers": {SENT_AT: time.time()}, "expires": RETENTION_SECONDS}


class DeduplicatedTask(Task):  # type: ignore[misc]  # celery has no types
    """Task that skips a message if an equal one has begun since it was sent."""

    abstract = True

    def __init__(self) -> None:
        self._began: dict[tuple[object, ...], float] = {}

    def __call__(self, *args: object) -> object:
        sent_at = getattr(self.request, SENT_AT, None)
        if isinstance(sent_at, float) and sent_at < self._began.get(args, 0.0):
            return None
        if len(self._began) >= _MAX_ENTRIES:
            self._began.clear()
        self._began[args] = time.time()
        return self.run(*args)
