"""Task of job events."""

from celery import shared_task

from market.platform.events.announcer import announce
from market.webhooks import service as webhooks
from worker.context import context


@shared_task(name="events.announce")
def announce_events() -> None:
    """Announce new job events to subscribers."""
    c = context()
    announce(c.database, c.redis, webhooks.fan_out)
