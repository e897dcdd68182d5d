"""Task of the ledger's reconciliation."""

from celery import shared_task

from market.ledger.reconciliation import watch
from worker.context import context


@shared_task(name="ledger.reconcile")
def reconcile() -> None:
    """Compare the ledger with the chain, and log an error if they differ."""
    c = context()
    watch(c.database, c.chain.client, c.chain.deployment)
