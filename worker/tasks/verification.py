"""Tasks of verification, and of disputes and referees."""

from celery import shared_task

from market.payments.settlement import dispute_keeper
from market.verification.decisions import service as decisions_service
from market.verification.disputes import referee_list
from worker.context import context


@shared_task(name="verification.advance")
def advance() -> None:
    """Close windows, record seeds, sample segments, assign replays, decide units."""
    c = context()
    decisions_service.advance(
        c.database, c.storage, c.settings, c.network, c.chain, c.challenger, former=c.former_challengers
    )


@shared_task(name="disputes.keep")
def keep_disputes() -> None:
    """Draw committees, send verdicts, enforce response deadlines, restore held payouts."""
    c = context()
    dispute_keeper.queue_due_calls(c.database, c.network, c.chain)


@shared_task(name="disputes.keep_list")
def keep_list_of_referees() -> None:
    """Delist referees that can no longer be drawn."""
    c = context()
    referee_list.evict_idle(c.database, c.chain)
