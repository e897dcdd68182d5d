"""Queries for jobs whose round can advance."""

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.jobs.models import Job
from market.jobs.repository import IS_OPEN
from market.training.checkpoints.models import Checkpoint


def active_jobs(session: Session) -> list[str]:
    """Return jobs that dispatch may advance; waiting ones until their first checkpoint."""
    has_checkpoint = exists().where(Checkpoint.job_id == Job.id, Checkpoint.round == 0)
    is_ready = (Job.status == JobStatus.MATCHING) & has_checkpoint
    due = select(Job.id).where(IS_OPEN, Job.status != JobStatus.SUBMITTED, ~is_ready)
    return list(session.scalars(due.order_by(Job.id)))
