"""The Celery application of the market's own workers.

PostgreSQL is the truth, messages only wake: each task looks at rows and moves what is due, so a lost message costs one
sweep interval and a duplicate finds nothing to do. Providers never connect to this broker.
"""

from collections.abc import Sequence

from celery import Celery

from market.settings import Settings
from worker.task_dedup import KEPT_SECONDS, DeduplicatedTask

TASKS = (
    "worker.tasks.chain",
    "worker.tasks.ledger",
    "worker.tasks.market",
    "worker.tasks.rewards",
    "worker.tasks.sweep",
)


def create_app(settings: Settings, tasks: Sequence[str] = TASKS) -> Celery:
    """The application for these settings: JSON messages only, acknowledged after the work, one at a time."""
    app = Celery("zoo", broker=settings.redis_url, include=tasks, task_cls=DeduplicatedTask)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_soft_time_limit=None,  # the thread pool has no signals; long steps are bounded where they wait
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": 3600},  # longer than the longest task
        beat_schedule=schedule(settings),
        timezone="UTC",
    )
    return app


def schedule(settings: Settings) -> dict[str, dict[str, object]]:
    """What beat sends."""
    periods = {
        "chain.index": settings.chain_poll_seconds,
        "chain.send": settings.chain_poll_seconds,
        "auctions.clear": settings.auction_interval_seconds,
        "auctions.draw": settings.auction_interval_seconds,
        "ledger.reconcile": settings.reconcile_seconds,
        "verification.advance": settings.sweep_interval_seconds,
        "disputes.keep": settings.sweep_interval_seconds,
        "disputes.keep_list": settings.reconcile_seconds,
        "settlement.settle": settings.sweep_interval_seconds,
        "settlement.collect_fees": settings.sweep_interval_seconds,
        "providers.review": settings.reconcile_seconds,
        "providers.judge_uptime": settings.reconcile_seconds,
        "rewards.post": settings.reconcile_seconds,
        "jobs.release": settings.reconcile_seconds,
        "sweep.all": settings.sweep_interval_seconds,
    }
    return {
        name: {"task": name, "schedule": seconds, "options": {"expires": max(seconds, KEPT_SECONDS)}}
        for name, seconds in periods.items()
    }
