"""The sweep: what makes up for every lost message."""

from datetime import timedelta

from celery import shared_task

from market.accounts import service as accounts
from market.api.idempotency import forget_old_answers
from market.db.session import database_now
from market.jobs import service as jobs
from market.outages import service as outages
from market.providers import asks
from worker.context import context
from worker.tasks.market import aggregate, announce_events, deliver_webhooks, dispatch, validate
from worker.ticks import repeated


@shared_task(name="sweep.all")
def sweep() -> None:
    """End what has run out of time, then wake every job that something may be due for."""
    c = context()
    with c.database.exclusive("sweep") as held:
        if not held:
            return
        with c.database.transaction() as session:
            now = database_now(session)
            outages.report(session, outages.SWEEP, outages.sweep_gap(c.settings.sweep_interval_seconds))
            is_api_away = outages.is_away(session, outages.API, outages.api_gap(c.settings.lease_seconds), now)
            asks.expire_asks(session, now)
            accounts.discard_expired(session, now)
            forget_old_answers(session, now)
        if not is_api_away:  # otherwise no node can keep what it has
            jobs.expire_due_leases(c.database, now)
            jobs.expire_uploads(c.database, now - timedelta(seconds=c.settings.upload_seconds))
            jobs.expire_replays(c.database, timedelta(seconds=c.settings.replay_seconds), now)
        jobs.expire_due_jobs(c.database, now)
        jobs.end_long_pauses(c.database, c.network, now)
        jobs.end_before_refund(c.database, c.network, now)
        for job_id in jobs.due_jobs(c.database):
            for task in (dispatch, aggregate):
                task.apply_async(args=(job_id,), **repeated())
        for job_id in jobs.jobs_to_validate(c.database):
            validate.apply_async(args=(job_id,), **repeated())
    announce_events()
    deliver_webhooks.apply_async(**repeated())
