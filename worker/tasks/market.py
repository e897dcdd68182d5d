"""The market's background steps."""

from datetime import timedelta

from celery import shared_task

from market.auctions import clearing
from market.auctions import service as auctions
from market.payments.settlement import claims, dispute_keeper
from market.payments.settlement import service as settlement
from market.platform.db.session import database_now
from market.platform.events.announcer import announce, forget_steps
from market.platform.storage import quota
from market.providers.outages import service as outages
from market.training.aggregation import service as aggregation
from market.training.aggregation import tree
from market.training.evaluation import validation
from market.training.retention import jobs, slot_states
from market.training.rounds import service as rounds
from market.training.uploads import service as uploads
from market.verification.disputes import referee_list
from market.verification.disputes import service as disputes
from market.verification.judgement import service as judgement
from market.verification.judgement import state_release
from market.webhooks import service as webhooks
from worker.context import context

_UPLOADS_KEPT = timedelta(days=1)  # since anything was added to them


@shared_task(name="auctions.clear")
def clear() -> None:
    """Close every round that is due, and clear those that need no lot."""
    c = context()
    clearing.clear_due(c.database, c.settings, c.network)


@shared_task(name="auctions.draw")
def draw() -> None:
    """Clear the closed rounds whose lot can be drawn."""
    c = context()
    clearing.draw_due(c.database, c.settings, c.network, c.chain)


@shared_task(name="jobs.dispatch")
def dispatch(job_id: str) -> None:
    """Offer the units of the job's round; fill vacant slots."""
    c = context()
    rounds.dispatch(c.database, c.settings, c.storage, job_id)


@shared_task(name="jobs.aggregate")
def aggregate(job_id: str) -> None:
    """Close the job's round if it is due: aggregate, next checkpoint."""
    c = context()
    aggregation.aggregate(c.database, c.settings, c.storage, job_id)


@shared_task(name="jobs.aggregate_leaf")
def aggregate_leaf(job_id: str, round_: str, leaf: str) -> None:
    """Summarise or sum the payloads of one leaf of a round's tree, whichever is due."""
    c = context()
    tree.work_leaf(c.database, c.storage, job_id, int(round_), int(leaf))


@shared_task(name="jobs.validate")
def validate(job_id: str) -> None:
    """Compute the validation losses that the job's rounds did not wait for."""
    c = context()
    validation.validate(c.database, c.storage, job_id)


@shared_task(name="jobs.release")
def release() -> None:
    """Forget what is old, and let storage drop the states that nobody needs and uploads that came to nothing."""
    c = context()
    with c.database.advisory_lock("release") as held:
        if not held:
            return
        with c.database.transaction() as session:
            now = database_now(session)
            quota.forget(session, now - quota.PERIOD)
            forget_steps(session, now)
            outages.forget(session, now)
        uploads.discard_stale(c.database, c.storage, now - _UPLOADS_KEPT)
        disputes.release_states(c.database, c.storage)
        slot_states.unpin_states(c.database, c.storage, c.network, now)
        state_release.unpin_expired_states(c.database, c.storage, c.network, now)
        kept = timedelta(days=c.settings.retention_days)
        jobs.purge_expired(c.database, c.storage, kept, now)
        auctions.purge_orders(c.database, kept, now)


@shared_task(name="verification.advance")
def advance() -> None:
    """Close windows, latch seeds, draw samples, assign replays, pass verdicts."""
    c = context()
    judgement.advance(c.database, c.storage, c.settings, c.network, c.chain, c.challenger, former=c.former_challengers)


@shared_task(name="disputes.keep")
def keep_disputes() -> None:
    """Draw committees, send verdicts, end turns that were let pass, restore withheld pay."""
    c = context()
    dispute_keeper.keep(c.database, c.network, c.chain)


@shared_task(name="disputes.keep_list")
def keep_list_of_referees() -> None:
    """Take off the list of referees who cannot be drawn any more."""
    c = context()
    referee_list.evict_idle(c.database, c.chain)


@shared_task(name="settlement.settle")
def settle() -> None:
    """Queue the settlement of verified units, and of jobs that have ended."""
    c = context()
    settlement.settle(c.database, c.storage, c.network, c.settings)


@shared_task(name="settlement.collect_fees")
def collect_fees() -> None:
    """Send the fees of settled batches to the treasury."""
    c = context()
    claims.collect_fees(c.database, c.chain.head_timestamp)


@shared_task(name="events.announce")
def announce_events() -> None:
    """Tell subscribers of new job events."""
    c = context()
    announce(c.database, c.redis, webhooks.fan_out)


@shared_task(name="webhooks.deliver")
def deliver_webhooks() -> None:
    """Send the webhooks that are due."""
    c = context()
    webhooks.deliver_due(c.database, private=c.settings.webhooks_to_private_addresses)
