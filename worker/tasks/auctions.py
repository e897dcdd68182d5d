"""Tasks of auction rounds."""

from celery import shared_task

from market.auctions import clearing
from worker.context import context


@shared_task(name="auctions.clear")
def clear() -> None:
    """Close every due auction round, and clear those without a random tie-break."""
    c = context()
    clearing.clear_due(c.database, c.settings, c.network)


@shared_task(name="auctions.draw")
def draw() -> None:
    """Clear the closed auction rounds whose random tie-break has its seed."""
    c = context()
    clearing.draw_due(c.database, c.settings, c.network, c.chain)
