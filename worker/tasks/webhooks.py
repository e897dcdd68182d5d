"""Task of webhooks, in a queue and in workers of its own (``worker.webhooks``)."""

from functools import cache

from celery import shared_task

import market.tables  # noqa: F401  # foreign keys cross features: a process must know all tables
from market.platform.db.engine import Timeouts
from market.platform.db.session import Database
from market.settings import Settings
from market.webhooks import service as webhooks


@cache
def _database(url: str, timeouts: Timeouts) -> Database:
    return Database(url, timeouts)


@shared_task(name="webhooks.deliver")
def deliver_webhooks() -> None:
    """Send the due webhooks."""
    settings = Settings()  # type: ignore[call-arg]  # the environment has them
    database = _database(settings.database_url, Timeouts.of(settings))
    webhooks.deliver_due(database, private=settings.webhooks_to_private_addresses)
