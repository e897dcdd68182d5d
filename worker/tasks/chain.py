"""Following the chain and sending to it."""

from celery import shared_task

from worker.context import context


@shared_task(name="chain.index")
def index() -> None:
    """Ingest new blocks and act on what has become final, until nothing is to be done now."""
    while context().indexer.step():
        pass


@shared_task(name="chain.send")
def send() -> None:
    """Move queued and pending transactions on, until nothing is to be done now."""
    for sender in context().senders:
        while sender.step():
            pass
