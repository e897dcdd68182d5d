"""Queries for jobs whose round can advance."""

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.jobs.models import Job
from market.training.checkpoints.models import Checkpoint


def active_jobs(session: Session) -> list[str]:
    """Return jobs that dispatch may advance; waiting ones until their first checkpoint."""
    at_rest = (JobStatus.SUBMITTED, JobStatus.SETTLED, JobStatus.REJECTED)
    has_checkpoint = exists().where(Checkpoint.job_id == Job.id, Checkpoint.round == 0)
    is_ready = (Job.status == JobStatus.MATCHING) & has_checkpoint
    return list(session.scalars(select(Job.id).where(Job.status.not_in(at_rest), ~is_ready).order_by(Job.id)))
