"""The sweep, which repeats lost tasks."""

from datetime import timedelta

from celery import shared_task

from market.accounts import service as accounts
from market.accounts.idempotency import delete_expired_answers
from market.orders import amendments
from market.platform.db.session import database_now
from market.providers import asks
from market.providers.outages import service as outages
from market.training.evaluation import validation
from market.training.leases import expiry
from market.training.matching import book
from market.training.rounds import service as rounds
from worker.context import context
from worker.task_dedup import repeated
from worker.tasks.events import announce_events
from worker.tasks.rounds import aggregate, dispatch, validate
from worker.tasks.webhooks import deliver_webhooks


@shared_task(name="sweep.all")
def sweep() -> None:
    """Expire what is past its deadline, then enqueue the tasks of every job that may be due."""
    c = context()
    with c.database.advisory_lock("sweep") as held:
        if not held:
            return
        with c.database.transaction() as session:
            now = database_now(session)
            outages.report(session, outages.SWEEP, outages.sweep_gap(c.settings.sweep_interval_seconds))
            is_api_down = outages.is_unresponsive(session, outages.API, outages.api_gap(c.settings.lease_seconds), now)
            asks.expire_asks(session, now)
            accounts.discard_expired(session, now)
            delete_expired_answers(session, now)
        if not is_api_down:  # during an outage no node can renew its lease
            expiry.expire_due(c.database, now)
            expiry.expire_uploads(c.database, now - timedelta(seconds=c.settings.upload_seconds))
            expiry.expire_replays(c.database, timedelta(seconds=c.settings.replay_seconds), now)
        book.expire_due(c.database, now)
        amendments.end_long_pauses(c.database, c.network, now)
        amendments.end_before_refund(c.database, c.network, now)
        for job_id in rounds.due_jobs(c.database):
            for task in (dispatch, aggregate):
                task.apply_async(args=(job_id,), **repeated())
        for job_id in validation.jobs_to_validate(c.database):
            validate.apply_async(args=(job_id,), **repeated())
    announce_events()
    deliver_webhooks.apply_async(**repeated())
