"""Tasks of settlement."""

from celery import shared_task

from market.payments.settlement import claims
from market.payments.settlement import service as settlement
from worker.context import context


@shared_task(name="settlement.settle")
def settle() -> None:
    """Queue the settlement of verified units and of ended jobs."""
    c = context()
    settlement.settle(c.database, c.storage, c.network, c.settings)


@shared_task(name="settlement.collect_fees")
def collect_fees() -> None:
    """Send the fees of settled batches to the treasury."""
    c = context()
    claims.collect_fees(c.database, c.chain.head_timestamp)
