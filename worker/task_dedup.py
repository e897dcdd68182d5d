"""Messages that only repeat a name: the clock's ticks, and what the sweep sends for each job.

Where the workers are busy for long, such messages wait. To drop those that waited for too long starves some for ever,
as it is always the same ones: of those sent together the last, of all those sent most often. So one is left out only
if its task has begun since it was sent, for then its work is done. All names have their turn, and the queue is never
longer than what was sent in one turn.
"""

import time
from typing import Any

from celery import Task

SENT_AT = "sent_at"
"""The header with the Unix time at which a message was sent, by the sender's clock."""


KEPT_SECONDS = 60
"""After a time without any worker, what was sent longer ago is dropped; the newest ones do its work."""


_MOST = 10_000


def mark(headers: dict[str, Any], **_: object) -> None:
    """Receiver of ``before_task_publish`` where all that is sent only repeats."""
    headers[SENT_AT] = time.time()


def repeated() -> dict[str, Any]:
    """Options of a single message that only repeats."""
    return {"headers": {SENT_AT: time.time()}, "expires": KEPT_SECONDS}


class DeduplicatedTask(Task):  # type: ignore[misc]  # celery has no types
    """A task that leaves a repeating message out if this process has begun with the same since it was sent."""

    abstract = True

    def __init__(self) -> None:
        self._began: dict[tuple[object, ...], float] = {}

    def __call__(self, *args: object) -> object:
        sent_at = getattr(self.request, SENT_AT, None)
        if isinstance(sent_at, float) and sent_at < self._began.get(args, 0.0):
            return None
        if len(self._began) >= _MOST:
            self._began.clear()
        self._began[args] = time.time()
        return self.run(*args)
