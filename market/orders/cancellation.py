"""Cancellation of jobs."""

from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.chain.contracts.codec import ChainEvent
from market.domain.lifecycle import JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.access import lock_own_job
from market.jobs.models import Job
from market.orders.errors import NotCancellable
from market.platform.events.service import MARKET
from market.training.leases.service import CANCELLED_BY_PAYER, cancel_now

_CANCELLABLE = (JobStatus.FUNDED, JobStatus.MATCHING, JobStatus.RUNNING)
_REFUNDED = "escrow_refunded"


def cancel(session: Session, principal: Principal, job_id: str) -> Job:
    """Cancel a job for its payer. Delivered units are paid, the rest is refunded. Idempotent.

    Raises:
        JobNotFound: the job does not exist, or the caller may not see it.
        NotPermitted: the caller may see it, but not act on it.
        NotCancellable: its training is over.
    """
    job = lock_own_job(session, principal, job_id)
    if job.reason == CANCELLED_BY_PAYER:
        return job
    if job.status == JobStatus.SUBMITTED:  # cancelled and refunded once its deposit is final
        job.cancelled_by = principal.address
        return job
    if job.status not in _CANCELLABLE:
        raise NotCancellable(
            f"The job is {job.status}.",
            remedy="Wait for its settlement, which refunds what is not paid to providers.",
        )
    cancel_now(session, job, principal.address)
    return job


def on_job_cancelled(session: Session, event: ChainEvent) -> None:
    """Cancel a job that its payer cancelled in the escrow contract."""
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is not None and job.status in _CANCELLABLE:
        cancel_now(session, job, job.payer)


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    """Cancel a job whose escrow was refunded: no budget is left for further units."""
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is not None and job.status in _CANCELLABLE:
        cancel_now(session, job, MARKET, _REFUNDED)
