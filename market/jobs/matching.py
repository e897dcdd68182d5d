"""Jobs in the book: what they bid, who gets them, and how they leave it without a match."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.chain.contracts import ChainEvent
from market.db.session import Database, database_now, wake_after_commit
from market.domain.books import StandingBid
from market.domain.lifecycle import JobEvent, JobStatus
from market.domain.placement import Requirements
from market.events.service import MARKET
from market.jobs import repository
from market.jobs.access import lock_own_job
from market.jobs.errors import NotCancellable
from market.jobs.leases import stop_training
from market.jobs.models import Job, Slot
from market.jobs.moves import move_job
from market.jobs.quotes import job_limit
from market.providers import service as providers
from market.settings import Settings

_CANCELLABLE = (JobStatus.FUNDED, JobStatus.MATCHING, JobStatus.RUNNING)
CANCELLED_BY_PAYER = "cancelled_by_payer"
_REFUNDED = "escrow_refunded"


def open_bids(session: Session, tier_id: int, zone: str, now: datetime) -> list[StandingBid]:
    """The jobs waiting in the book of a tier and zone, oldest first.

    A job bids for ``nodes`` at the highest price that its payer takes and at which its budget pays all its units.
    """
    return [
        StandingBid(
            id=job.id,
            qty=job.nodes,
            limit_price=job_limit(job),
            time=job.funded_at or job.created_at,
            requirements=requirements,
        )
        for job in repository.jobs_in_book(session, tier_id, now)
        if (requirements := Requirements.of(job.requirements)).allows_region(zone)
    ]


def busy_providers(session: Session) -> set[str]:
    """Addresses of the nodes that hold a slot of a running job."""
    return repository.slot_holders(session)


def is_at_work(session: Session, provider: str) -> bool:
    """Whether a node holds a slot, or trains or shows a state; if not, nobody places it in this transaction's time."""
    if repository.is_at_work(session, provider):  # without the lock: nodes ask this with every heartbeat
        return True
    repository.lock_placement(session)
    return repository.is_at_work(session, provider)


def assign(
    session: Session,
    settings: Settings,
    job_id: str,
    price: int,
    auction_round_id: int,
    addresses: Sequence[str],
    environment_class: str,
) -> bool:
    """Give a cleared job its nodes, slot by slot, at ``price`` wei per GPU-hour; training starts after the commit.

    All its nodes are of one environment class, so that any unit can be replayed bit for bit by the same verifiers.

    Returns:
        False, with nothing done, if the job has left the book or bids less by now, or one of the nodes was placed
        elsewhere, has to show its hardware, or ceased to meet the job's requirements meanwhile.
    """
    job = repository.lock_job(session, job_id)
    repository.lock_placement(session)
    now = database_now(session)
    if job is None or job.status != JobStatus.MATCHING or job.expires_at <= now or job.paused_at is not None:
        return False
    if price > job_limit(job):
        return False
    if repository.slot_holders(session) & set(addresses) or providers.proving_among(session, addresses, now):
        return False
    requirements = Requirements.of(job.requirements)
    if not all(
        requirements.accepts(node) for node in providers.nodes_among(session, settings, addresses, now).values()
    ):
        return False
    session.add_all(Slot(job_id=job_id, slot=slot, provider=address) for slot, address in enumerate(addresses))
    job.clearing_price_wei = price
    job.auction_round_id = auction_round_id
    job.environment_class = environment_class
    job.matched_at = job.round_started_at = now
    job.current_round = 0
    move_job(session, job, JobEvent.MATCHED)
    wake_after_commit(session, "jobs.dispatch", job_id)
    return True


def expire_due(database: Database, now: datetime) -> int:
    """Take jobs out of the book whose payers wait no longer; they are refunded in full. Returns how many."""
    with database.transaction() as session:
        due = repository.jobs_past_waiting(session, now)
    for job_id in due:
        with database.transaction() as session:
            job = repository.lock_job(session, job_id)
            if job is not None and job.status == JobStatus.MATCHING and job.expires_at <= now:
                move_job(session, job, JobEvent.EXPIRE, reason="expired")
                wake_after_commit(session, "settlement.settle")
    return len(due)


def cancel(session: Session, principal: Principal, job_id: str) -> Job:
    """Stop a job for its payer. Work already delivered is still checked and paid, the rest is refunded.

    Cancelling a job again changes nothing.

    Raises:
        JobNotFound: there is none, or it is somebody else's.
        NotPermitted: the caller may see it, but not act on it.
        NotCancellable: its training is over.
    """
    job = lock_own_job(session, principal, job_id)
    if job.reason == CANCELLED_BY_PAYER:
        return job
    if job.status == JobStatus.SUBMITTED:  # the deposit cannot be called back; once it is final, it is refunded
        job.cancelled_by = principal.address
        return job
    if job.status not in _CANCELLABLE:
        raise NotCancellable(
            f"The job is {job.status}.",
            remedy="Nothing is left to cancel; what is not paid to providers is refunded at settlement.",
        )
    cancel_now(session, job, principal.address)
    return job


def on_job_cancelled(session: Session, event: ChainEvent) -> None:
    """The payer ended its job in the escrow contract itself; do the same here, if there is anything left to end."""
    job = repository.lock_job(session, event.args["jobId"])
    if job is not None and job.status in _CANCELLABLE:
        cancel_now(session, job, job.payer)


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    """Nothing is left in escrow that could pay for more work: who still works on the job is told to stop."""
    job = repository.lock_job(session, event.args["jobId"])
    if job is not None and job.status in _CANCELLABLE:
        cancel_now(session, job, MARKET, _REFUNDED)


def cancel_now(session: Session, job: Job, actor: str, reason: str = CANCELLED_BY_PAYER) -> None:
    """Cancel a funded, matching or running job whose row the caller has locked."""
    trains = job.status == JobStatus.RUNNING
    move_job(session, job, JobEvent.CANCEL, reason=reason, actor=actor)
    if trains:
        stop_training(session, job, reason)
    else:
        wake_after_commit(session, "settlement.settle")
