"""Tasks of the indexer, the senders, and the comparison of the ledger with the chain."""

from celery import shared_task

from market.ledger.reconciliation import watch
from worker.context import context


@shared_task(name="chain.index")
def index() -> None:
    """Ingest new blocks and handle final events, until nothing is due."""
    while context().indexer.step():
        pass


@shared_task(name="chain.send")
def send() -> None:
    """Advance queued and sent transactions, until nothing is due."""
    for sender in context().senders:
        while sender.step():
            pass


@shared_task(name="ledger.reconcile")
def reconcile() -> None:
    """Compare the ledger with the chain, and log an error if they differ."""
    c = context()
    watch(c.database, c.chain.client, c.chain.deployment)
