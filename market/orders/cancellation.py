"""Cancellation of jobs by their payers."""

from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.chain.contracts.codec import ChainEvent
from market.domain.lifecycle import JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.access import lock_own_job
from market.jobs.models import Job
from market.orders.errors import NotCancellable
from market.platform.events.service import MARKET
from market.training.leases.stopping import CANCELLED_BY_PAYER, cancel_now

_CANCELLABLE = (JobStatus.FUNDED, JobStatus.MATCHING, JobStatus.RUNNING)
_REFUNDED = "escrow_refunded"


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
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is not None and job.status in _CANCELLABLE:
        cancel_now(session, job, job.payer)


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    """Nothing is left in escrow that could pay for more work: who still works on the job is told to stop."""
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is not None and job.status in _CANCELLABLE:
        cancel_now(session, job, MARKET, _REFUNDED)
