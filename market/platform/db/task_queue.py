"""Queue of Celery messages, which contain names and ids only."""

import threading
import time
from contextvars import Context, copy_context

import structlog
from celery import Celery

from market.platform.db.session import EnqueueTask

WEBHOOKS_QUEUE = "webhooks"
TASK_ROUTES = {"webhooks.*": {"queue": WEBHOOKS_QUEUE}}
"""Queues of tasks; the others are in Celery's default queue. Slow receivers must not delay the market's own tasks."""

_PAUSE_SECONDS = 0.1  # between two batches
_log = structlog.get_logger(__name__)


def celery_sender(broker_url: str) -> EnqueueTask:
    """Return a sender (:data:`EnqueueTask`) to the broker at ``broker_url``.

    It never raises and never blocks: a thread sends the messages and merges equal ones. The next sweep repeats messages
    that are lost because Redis is down or the process ends.
    """
    app = Celery("zoo", broker=broker_url)
    app.conf.update(
        broker_connection_timeout=1,
        broker_transport_options={"socket_connect_timeout": 1, "socket_timeout": 1},
        task_ignore_result=True,
        task_routes=TASK_ROUTES,
    )

    def send(task: str, arguments: tuple[str, ...]) -> None:
        app.send_task(task, args=arguments, retry=False, ignore_result=True)

    return TaskQueue(send)


class TaskQueue:
    """Queue of messages, sent in batches by a thread that ends when the queue is empty.

    Each message is sent in the context of its first caller, which continues the trace.
    """

    def __init__(self, send: EnqueueTask) -> None:
        self._send = send
        self._waiting: dict[tuple[str, tuple[str, ...]], Context] = {}
        self._lock = threading.Lock()
        self._is_sending = False

    def __call__(self, task: str, arguments: tuple[str, ...]) -> None:
        with self._lock:
            self._waiting.setdefault((task, arguments), copy_context())
            if self._is_sending:
                return
            self._is_sending = True
        try:
            threading.Thread(target=self._run, name="task-queue", daemon=True).start()
        except RuntimeError as error:  # no thread available; the next message starts one
            _log.warning("tasks_delayed", error=str(error))
            with self._lock:
                self._is_sending = False

    def _run(self) -> None:
        while True:
            with self._lock:
                due, self._waiting = self._waiting, {}
                if not due:
                    self._is_sending = False
                    return
            for (task, arguments), context in due.items():
                try:
                    context.run(self._send, task, arguments)
                except Exception as error:  # an error must not block the next message
                    _log.warning("task_not_sent", task=task, error=str(error))
            time.sleep(_PAUSE_SECONDS)
