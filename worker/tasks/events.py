"""Tasks of job events and webhooks."""

from celery import shared_task

from market.platform.events.announcer import announce
from market.webhooks import service as webhooks
from worker.context import context


@shared_task(name="events.announce")
def announce_events() -> None:
    """Announce new job events to subscribers."""
    c = context()
    announce(c.database, c.redis, webhooks.fan_out)


@shared_task(name="webhooks.deliver")
def deliver_webhooks() -> None:
    """Send the due webhooks."""
    c = context()
    webhooks.deliver_due(c.database, private=c.settings.webhooks_to_private_addresses)
