"""Stopping the training of a job."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import JobEvent, JobStatus, LeaseEvent, UnitStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.platform.db.session import enqueue_after_commit
from market.training.leases import repository as leases_repository
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import abandon
from market.training.units import repository as units_repository
from market.training.units.service import settle_if_decided


def stop_training(session: Session, job: Job, reason: str, *, keep_committed: bool = False) -> None:
    """End the job's train and prefetch leases, lose undelivered units and free its nodes.

    The caller has locked the job and moved it out of ``running``.

    Args:
        keep_committed: keep the leases of committed units, which are being uploaded. Their replicas are freed after
            the upload or the loss, at the latest by :func:`expire_uploads`.
    """
    kinds = LeaseKind.TRAIN, LeaseKind.FOLLOW
    for locked in leases_repository.lock_open_leases(session, job.id, kinds=kinds):
        if not (keep_committed and locked[1] is not None and locked[1].status == UnitStatus.COMMITTED):
            abandon(session, *locked, LeaseEvent.EXPIRE, reason)
    uploading = units_repository.committed_slots(session, job.id)
    for slot in jobs_repository.slots(session, job.id):
        if slot.slot not in uploading:
            slot.provider = None
    settle_if_decided(session, job, utc_now())


CANCELLED_BY_PAYER = "cancelled_by_payer"


def cancel_now(session: Session, job: Job, actor: str, reason: str = CANCELLED_BY_PAYER) -> None:
    """Cancel a funded, matching or running job whose row the caller has locked."""
    trains = job.status == JobStatus.RUNNING
    transition_job(session, job, JobEvent.CANCEL, reason=reason, actor=actor)
    if trains:
        stop_training(session, job, reason)
    else:
        enqueue_after_commit(session, "settlement.settle")
