"""Task of verification."""

from celery import shared_task

from market.verification.decisions import service as decisions_service
from worker.context import context


@shared_task(name="verification.advance")
def advance() -> None:
    """Close windows, record seeds, sample segments, assign replays, decide units."""
    c = context()
    decisions_service.advance(
        c.database, c.storage, c.settings, c.network, c.chain, c.challenger, former=c.former_challengers
    )
