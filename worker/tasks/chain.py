"""Tasks of the indexer and the senders."""

from celery import shared_task

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
