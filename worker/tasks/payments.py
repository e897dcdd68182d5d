"""Tasks of settlement, and of uptime, reliability and rewards."""

from celery import shared_task

from market.payments.rewards import service as rewards
from market.payments.settlement import claims
from market.payments.settlement import service as settlement
from market.platform.db.base import utc_now
from market.providers.benchmarks import service as benchmarks
from market.providers.record import reliability, uptime
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


@shared_task(name="providers.review")
def review() -> None:
    """Update the scores of nodes, and demote those that missed a benchmark."""
    c = context()
    reliability.review(c.database, c.network, utc_now())
    benchmarks.demote_overdue(c.database, utc_now())


@shared_task(name="providers.judge_uptime")
def judge_uptime() -> None:
    """Evaluate the uptime of past epochs, and queue the penalties."""
    c = context()
    uptime.evaluate_epochs(c.database, c.storage, c.network, utc_now())


@shared_task(name="rewards.post")
def post() -> None:
    """Post the rewards of evaluated epochs."""
    c = context()
    rewards.post(c.database, c.network, c.chain, utc_now())
