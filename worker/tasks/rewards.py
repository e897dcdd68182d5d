"""Uptime, reliability and rewards."""

from celery import shared_task

from market.payments.rewards import service as rewards
from market.platform.db.base import utc_now
from market.providers.benchmarks import service as benchmarks
from market.providers.record import reviews, uptime
from worker.context import context


@shared_task(name="providers.review")
def review() -> None:
    """Bring the scores of nodes up to date, and demote those that did not show their hardware again."""
    c = context()
    reviews.review(c.database, c.network, utc_now())
    benchmarks.demote_overdue(c.database, utc_now())


@shared_task(name="providers.judge_uptime")
def judge_uptime() -> None:
    """Judge the uptime of epochs that are over, and send what penalties follow."""
    c = context()
    uptime.judge(c.database, c.storage, c.network, utc_now())


@shared_task(name="rewards.post")
def post() -> None:
    """Post what the judged epochs earned."""
    c = context()
    rewards.post(c.database, c.network, c.chain, utc_now())
