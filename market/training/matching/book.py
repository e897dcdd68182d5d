"""Jobs in the order book: bids, assignment of nodes, expiry."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.auctions.books import StandingBid
from market.domain.lifecycle import JobEvent, JobStatus
from market.domain.nodes.placement import Requirements
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.jobs.pricing import job_limit
from market.jobs.transitions import transition_job
from market.platform.db.session import Database, database_now, enqueue_after_commit
from market.providers import service as providers
from market.settings import Settings


def open_bids(session: Session, tier_id: int, zone: str, now: datetime) -> list[StandingBid]:
    """Return the bids in the book of a tier and zone, oldest first.

    A job bids for ``nodes`` at the highest price that its payer accepts and at which its budget pays all units.
    """
    return bids_in_zone(jobs_repository.jobs_in_book(session, tier_id, now), zone)


def bids_in_zone(jobs: Iterable[Job], zone: str) -> list[StandingBid]:
    """Return the bids of a tier's jobs that accept a zone, in their order."""
    return [
        StandingBid(
            id=job.id,
            qty=job.nodes,
            limit_price=job_limit(job),
            time=job.funded_at or job.created_at,
            requirements=requirements,
        )
        for job in jobs
        if (requirements := Requirements.of(job.requirements)).allows_region(zone)
    ]


def assign(
    session: Session,
    settings: Settings,
    job_id: str,
    price: int,
    auction_round_id: int,
    addresses: Sequence[str],
    environment_class: str,
) -> bool:
    """Assign a cleared job its nodes at ``price`` wei per GPU-hour and start its training.

    All nodes are of one environment class, so that the same verifiers can replay any unit bit for bit.

    Returns:
        False, without a change, if the job has left the book or bids less. Also if a node was placed elsewhere, runs
        a benchmark, or fails the requirements.
    """
    job = jobs_repository.lock_job(session, job_id)
    jobs_repository.lock_placement(session)
    now = database_now(session)
    if job is None or job.status != JobStatus.MATCHING or job.expires_at <= now or job.paused_at is not None:
        return False
    if price > job_limit(job):
        return False
    is_placed = jobs_repository.slot_holders(session) & set(addresses)
    if is_placed or providers.providers_in_benchmark(session, addresses, now):
        return False
    nodes = providers.nodes_among(session, settings, addresses, now).values()
    if not all(map(Requirements.of(job.requirements).accepts, nodes)):
        return False
    session.add_all(Slot(job_id=job_id, slot=slot, provider=address) for slot, address in enumerate(addresses))
    job.clearing_price_wei = price
    job.auction_round_id = auction_round_id
    job.environment_class = environment_class
    job.matched_at = job.round_started_at = now
    job.current_round = 0
    transition_job(session, job, JobEvent.MATCHED)
    enqueue_after_commit(session, "jobs.dispatch", job_id)
    return True


def expire_due(database: Database, now: datetime) -> int:
    """Expire jobs whose payers' waiting time is over, for a full refund; return their number."""
    with database.transaction() as session:
        due = jobs_repository.jobs_past_waiting(session, now)
    for job_id in due:
        with database.transaction() as session:
            job = jobs_repository.lock_job(session, job_id)
            if job is not None and job.status == JobStatus.MATCHING and job.expires_at <= now:
                transition_job(session, job, JobEvent.EXPIRE, reason="expired")
                enqueue_after_commit(session, "settlement.settle")
    return len(due)
