"""The clock (``celery -A worker.beat beat``): it sends names and needs none of the tasks' code."""

from market.settings import Settings
from worker.app import create_app

app = create_app(Settings(), tasks=())  # type: ignore[call-arg]  # an entry point: the environment has them
