"""Redis, which only wakes things up: Celery messages that carry names and ids, and a client that never waits long."""

import threading
import time
from contextvars import Context, copy_context

import structlog
from celery import Celery
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from market.platform.db.session import Wake

_PAUSE_SECONDS = 0.1  # between two sendings; what is asked for meanwhile goes out together


_log = structlog.get_logger(__name__)


def connect_redis(url: str) -> Redis:
    """A client that gives up within seconds and repeats nothing: what Redis misses is found in the database."""
    return Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0))


def celery_wake(broker_url: str) -> Wake:
    """A :data:`~market.platform.db.session.Wake` that sends to the broker at ``broker_url``.

    It never fails and never waits: a thread sends the messages, equal ones that are due together as one. What is not
    sent, because Redis is away or the process ends, is made up by the next sweep.
    """
    app = Celery("zoo", broker=broker_url)
    app.conf.update(
        broker_connection_timeout=1,
        broker_transport_options={"socket_connect_timeout": 1, "socket_timeout": 1},
        task_ignore_result=True,
    )

    def send(task: str, arguments: tuple[str, ...]) -> None:
        app.send_task(task, args=arguments, retry=False, ignore_result=True)

    return TaskQueue(send)


class TaskQueue:
    """Sends messages from a thread that lives while there are some: at once, unless others went out just now.

    Each is sent in the context of who asked for it first, so that traces follow it.
    """

    def __init__(self, send: Wake) -> None:
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
            threading.Thread(target=self._run, name="wake-ups", daemon=True).start()
        except RuntimeError as error:  # no thread can be had now; with the next message it is tried again
            _log.warning("wake-ups wait", error=str(error))
            with self._lock:
                self._is_sending = False

    def _run(self) -> None:
        """Send until nothing is waiting."""
        while True:
            with self._lock:
                due, self._waiting = self._waiting, {}
                if not due:
                    self._is_sending = False
                    return
            for (task, arguments), context in due.items():
                try:
                    context.run(self._send, task, arguments)
                except Exception as error:  # whatever it is, the next message is to go out
                    _log.warning("wake-up not sent", task=task, error=str(error))
            time.sleep(_PAUSE_SECONDS)
