"""The Celery application of the market's workers.

PostgreSQL is authoritative. Each task reads rows and advances due ones, so a duplicate message has no effect and a lost
one costs a sweep interval. Providers never connect to the broker.
"""

from collections.abc import Sequence

from celery import Celery

from market.platform.db.task_queue import TASK_ROUTES
from market.settings import Settings
from worker.task_dedup import RETENTION_SECONDS, DeduplicatedTask

TASKS = (
    "worker.tasks.chain",
    "worker.tasks.jobs",
    "worker.tasks.payments",
    "worker.tasks.upkeep",
    "worker.tasks.verification",
    "worker.tasks.webhooks",
)


def create_app(settings: Settings, tasks: Sequence[str] = TASKS) -> Celery:
    """Return the application: JSON messages, acknowledged after the work, one at a time."""
    app = Celery("zoo", broker=settings.redis_url, include=tasks, task_cls=DeduplicatedTask)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_routes=TASK_ROUTES,
        task_serializer="json",
        accept_content=["json"],
        task_soft_time_limit=None,  # thread pools have no signals; tasks have their own timeouts
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": 3600},  # longer than the longest task
        beat_schedule=schedule(settings),
        timezone="UTC",
    )
    return app


def schedule(settings: Settings) -> dict[str, dict[str, object]]:
    """Return beat's schedule."""
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
        name: {"task": name, "schedule": seconds, "options": {"expires": max(seconds, RETENTION_SECONDS)}}
        for name, seconds in periods.items()
    }
