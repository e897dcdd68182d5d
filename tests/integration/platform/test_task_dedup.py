"""Task deduplication over a real broker: each name runs once, none starves."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish, setup_logging
from kit.waiting import wait_until
from redis import Redis

from market.platform.db.task_queue import celery_sender
from market.settings import Settings
from worker.app import create_app, schedule
from worker.task_dedup import mark, repeated

NAMES = ("first", "second", "third")


class Runs:
    def __init__(self, app: Celery) -> None:
        self.app, self.seen, self._over = app, Counter[tuple[object, ...]](), threading.Event()
        for name in NAMES:
            app.task(name=name, shared=False)(self._counting(name))

        @app.task(name="over", shared=False)  # type: ignore[untyped-decorator]
        def over() -> None:
            self._over.set()

    def _counting(self, name: str) -> Callable[..., None]:
        def run(*args: str) -> None:
            self.seen[(name, *args)] += 1

        return run

    def wait(self) -> None:
        self.app.send_task("over")
        assert self._over.wait(60)
        self._over.clear()


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Celery's worker sets the root logger's level for all later tests of this process."""

    def leave(**_: object) -> None:
        pass

    setup_logging.connect(leave)
    yield
    setup_logging.disconnect(leave)


@pytest.fixture
def runs(settings: Settings) -> Runs:
    app = create_app(settings, tasks=())
    app.conf.task_default_queue = uuid4().hex
    return Runs(app)


def _tick(app: Celery, times: int) -> None:
    before_task_publish.connect(mark)
    try:
        for _ in range(times):
            for name in NAMES:
                app.send_task(name, expires=60)
    finally:
        before_task_publish.disconnect(mark)


def test_queued_duplicates_run_once_and_can_be_resent(runs: Runs) -> None:
    _tick(runs.app, 5)
    for job in ("a", "a", "b"):
        runs.app.send_task("first", args=(job,), **repeated())
    for _ in range(2):
        runs.app.send_task("second", args=("woken",))  # a second enqueued task is not a repetition
    with start_worker(runs.app, pool="solo", perform_ping_check=False):
        runs.wait()
        once = {(name,): 1 for name in NAMES}
        assert runs.seen == once | {("first", "a"): 1, ("first", "b"): 1, ("second", "woken"): 2}
        _tick(runs.app, 1)
        runs.wait()
        assert {key: runs.seen[key] for key in once} == {(name,): 2 for name in NAMES}


def test_tick_is_not_dropped_for_waiting_past_interval(settings: Settings) -> None:
    """The most frequent ticks would otherwise all be dropped while others run."""
    entries = schedule(settings.model_copy(update={"auction_interval_seconds": 1.0}))
    lives = {name: entry["options"]["expires"] for name, entry in entries.items()}  # type: ignore[index]
    assert min(lives.values()) >= 60


def test_requests_enqueue_webhooks_apart(settings: Settings) -> None:
    broker = Redis.from_url(settings.redis_url)
    broker.delete("webhooks")
    celery_sender(settings.redis_url)("webhooks.deliver", ())
    wait_until(lambda: broker.llen("webhooks") == 1)
    broker.delete("webhooks")
    broker.close()
