"""The moves of jobs, units and leases: status, audit event and what subscribers see, always together."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import JOB, JobEvent
from market.jobs.models import Job
from market.platform.events.service import MARKET, emit, move


def transition_job(
    session: Session, job: Job, event: JobEvent, *, reason: str | None = None, actor: str = MARKET
) -> None:
    """Move a job whose row the caller has locked.

    Raises:
        IllegalTransition: if the job's status does not take the event.
    """
    move(session, job, JOB, event, subject=("job", job.id), reason=reason, actor=actor)
    emit(session, job.id, "status", {"status": job.status, "reason": job.reason})
