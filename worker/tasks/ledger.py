"""Watching over the ledger."""

from celery import shared_task

from market.ledger.reconciliation import watch
from worker.context import context


@shared_task(name="ledger.reconcile")
def reconcile() -> None:
    """Compare the ledger with the chain; an alarm if they differ."""
    c = context()
    watch(c.database, c.chain.client, c.chain.deployment)
