"""State transitions of jobs."""

from sqlalchemy.orm import Session

from market.domain.lifecycle import JOB, JobEvent
from market.jobs.models import Job
from market.platform.events.service import MARKET, apply_event, emit


def transition_job(
    session: Session, job: Job, event: JobEvent, *, reason: str | None = None, actor: str = MARKET
) -> None:
    """Apply ``event`` to a locked job, with audit and job event. Raises IllegalTransition."""
    apply_event(session, job, JOB, event, subject=("job", job.id), reason=reason, actor=actor)
    emit(session, job.id, "status", {"status": job.status, "reason": job.reason})
