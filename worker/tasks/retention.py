"""Task of retention."""

from datetime import timedelta

from celery import shared_task

from market.auctions import service as auctions
from market.platform.db.session import database_now
from market.platform.events.announcer import delete_old_steps
from market.platform.storage import quota
from market.providers.outages import service as outages
from market.training.retention import jobs, slot_states
from market.training.uploads import service as uploads
from market.verification.decisions import state_release
from market.verification.disputes import service as disputes
from worker.context import context

_UPLOAD_RETENTION = timedelta(days=1)  # after the last addition


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
        slot_states.unpin_states(c.database, c.storage, c.network, now)
        state_release.unpin_expired_states(c.database, c.storage, c.network, now)
        kept = timedelta(days=c.settings.retention_days)
        jobs.purge_expired(c.database, c.storage, kept, now)
        auctions.purge_orders(c.database, kept, now)
