"""Beat's entry point (``celery -A worker.beat beat``); it does not load the tasks."""

from celery.signals import before_task_publish

from market.settings import Settings
from worker.app import create_app
from worker.task_dedup import mark

app = create_app(Settings(), tasks=())  # type: ignore[call-arg]  # an entry point: the environment has them
before_task_publish.connect(mark)
