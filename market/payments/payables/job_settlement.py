"""Settlement's changes to a job."""

from datetime import datetime

from sqlalchemy.orm import Session

from market.accounts import spending
from market.domain.lifecycle import JobEvent, JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.transitions import transition_job
from market.training.units import repository as units_repository

_ENDED_EARLY = (JobStatus.CANCELLED, JobStatus.EXPIRED, JobStatus.FAILED, JobStatus.DISPUTED)


def start_settling(session: Session) -> None:
    """Move jobs that ended early and have no undecided units to ``settling``."""
    for job_id in jobs_repository.jobs_in(session, _ENDED_EARLY):
        job = jobs_repository.lock_job(session, job_id)
        if job is not None and job.status in _ENDED_EARLY and not units_repository.has_undecided_units(session, job_id):
            transition_job(session, job, JobEvent.SETTLE)


def set_record(session: Session, job_id: str, record_cid: str) -> None:
    """Store the CID of the record in the job's last settlement line."""
    job = jobs_repository.lock_job(session, job_id)
    if job is not None:
        job.record_cid = record_cid


def record_payment(session: Session, job_id: str, *, paid_wei: int, fee_wei: int, refund_wei: int) -> bool:
    """Add final payments from the job's escrow (negative: returned); False for unknown jobs."""
    job = jobs_repository.lock_job(session, job_id)
    if job is None:
        return False
    job.paid_wei = (job.paid_wei or 0) + paid_wei
    job.fee_wei = (job.fee_wei or 0) + fee_wei
    job.refund_wei = (job.refund_wei or 0) + refund_wei
    return True


def end_settlement(session: Session, job_id: str, *, tx: str, at: datetime) -> bool:
    """End a job whose escrow is empty. Return false if the job is not settling."""
    job = jobs_repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.SETTLING:
        return False
    job.settlement_tx, job.settled_at = tx, at
    spending.set_cost(session, job_id, (job.paid_wei or 0) + (job.fee_wei or 0))
    transition_job(session, job, JobEvent.SETTLEMENT_FINAL)
    return True


def reopen_settlement(session: Session, job_id: str) -> None:
    """Return a settled job to ``settling`` after a batch's veto. Its reason stays."""
    job = jobs_repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.SETTLED:
        return
    spending.set_cost(session, job_id, job.budget_wei)
    job.settlement_tx = job.settled_at = None
    transition_job(session, job, JobEvent.VETO)
