"""Redis, which only wakes things up: Celery messages that carry names and ids, and a client that never waits long."""

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from market.db.session import Wake

_log = structlog.get_logger(__name__)


def connect_redis(url: str) -> Redis:
    """A client that gives up within seconds and repeats nothing: what Redis misses is found in the database."""
    return Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0))


def celery_wake(broker_url: str) -> Wake:
    """A :data:`~market.db.session.Wake` that sends to the broker at ``broker_url``.

    It never fails and hardly waits: a message that cannot be sent is made up by the next sweep.
    """
    app = Celery("zoo", broker=broker_url)
    app.conf.update(
        broker_connection_timeout=1,
        broker_transport_options={"socket_connect_timeout": 1, "socket_timeout": 1},
        task_ignore_result=True,
    )

    def wake(task: str, arguments: tuple[str, ...]) -> None:
        try:
            app.send_task(task, args=arguments, retry=False, ignore_result=True)
        except OperationalError as error:
            _log.warning("wake-up not sent", task=task, error=str(error))

    return wake
