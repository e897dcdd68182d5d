"""The sweep, which repeats lost tasks, with the announcement of events and retention."""

import socket
from datetime import timedelta

from celery import shared_task

from market.accounts import repository as accounts
from market.accounts.idempotency import delete_expired_answers
from market.auctions import service as auctions
from market.orders import amendments
from market.platform.db.session import database_now
from market.platform.events.service import announce, delete_old_steps
from market.platform.storage import quota
from market.providers import repository as providers
from market.providers.outages import service as outages
from market.training.aggregation import memory
from market.training.evaluation import service as evaluation
from market.training.generation import service as generation
from market.training.leases import expiry
from market.training.matching import book
from market.training.retention import service as retention
from market.training.rounds import service as rounds
from market.training.uploads import service as uploads
from market.verification.decisions import state_release
from market.verification.disputes import service as disputes
from market.webhooks import service as webhooks
from worker.context import context
from worker.task_dedup import repeated
from worker.tasks.jobs import aggregate, dispatch, generate, validate
from worker.tasks.webhooks import deliver_webhooks

_UPLOAD_RETENTION = timedelta(days=1)  # after the last addition


@shared_task(name="events.announce")
def announce_events() -> None:
    """Announce new job events to subscribers."""
    c = context()
    announce(c.database, c.redis, webhooks.fan_out)


@shared_task(name="sweep.all")
def sweep() -> None:
    """Expire what is past its deadline, then enqueue the tasks of every job that may be due."""
    c = context()
    with c.database.advisory_lock("sweep") as held:
        if not held:
            return
        with c.database.transaction() as session:
            now = database_now(session)
            memory.report(session, c.settings, socket.gethostname())
            outages.report(session, outages.SWEEP, outages.sweep_gap(c.settings.sweep_interval_seconds))
            is_api_down = outages.is_unresponsive(session, outages.API, outages.api_gap(c.settings.lease_seconds), now)
            providers.expire_asks(session, now)
            accounts.delete_expired(session, now)
            delete_expired_answers(session, now)
            generation.delete_expired(session)
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
        for job_id in evaluation.jobs_to_validate(c.database):
            validate.apply_async(args=(job_id,), **repeated())
        if generation.is_waiting(c.database):
            generate.apply_async(**repeated())
    announce_events()
    deliver_webhooks.apply_async(**repeated())


@shared_task(name="jobs.release")
def release() -> None:
    """Delete expired rows, and unpin expired states and abandoned uploads."""
    c = context()
    with c.database.advisory_lock("release") as held:
        if not held:
            return
        with c.database.transaction() as session:
            now = database_now(session)
            quota.delete_expired(session, now - quota.PERIOD)
            delete_old_steps(session, now)
            outages.delete_expired(session, now)
        uploads.delete_stale(c.database, c.storage, now - _UPLOAD_RETENTION)
        disputes.release_states(c.database, c.storage)
        retention.unpin_states(c.database, c.storage, c.network, now)
        state_release.unpin_expired_states(c.database, c.storage, c.network, now)
        kept = timedelta(days=c.settings.retention_days)
        retention.purge_expired(c.database, c.storage, kept, now)
        auctions.purge_orders(c.database, kept, now)
