"""Queries over checkpoints, pins, and jobs by their first checkpoint."""

from collections.abc import Sequence

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.jobs.models import Job
from market.jobs.repository import IS_OPEN
from market.training.checkpoints.models import Checkpoint, Pin


def checkpoint(session: Session, job_id: str, round_: int) -> Checkpoint | None:
    return session.scalar(select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.round == round_))


def checkpoints(session: Session, job_id: str) -> list[Checkpoint]:
    return list(session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round)))


def oldest_with_file(session: Session, cid: str) -> Checkpoint | None:
    found = session.scalars(select(Checkpoint).where(Checkpoint.file_cids.contains([cid])))
    return min(found, key=lambda one: one.id, default=None)


def evaluated_between(session: Session, row: Checkpoint, first: int, limit: int) -> list[Checkpoint]:
    """Return the last checkpoints with a loss before this one and from a round on, newest first."""
    is_between = (Checkpoint.round >= first, Checkpoint.round < row.round, Checkpoint.validation_loss.is_not(None))
    query = select(Checkpoint).where(Checkpoint.job_id == row.job_id, *is_between)
    return list(session.scalars(query.order_by(Checkpoint.round.desc()).limit(limit)))


def unknown_between(session: Session, job_id: str, first: int, last: int) -> list[Checkpoint]:
    """Return the checkpoints without a loss from one round to another, ascending."""
    is_between = (Checkpoint.round >= first, Checkpoint.round <= last, Checkpoint.validation_loss.is_(None))
    query = select(Checkpoint).where(Checkpoint.job_id == job_id, *is_between)
    return list(session.scalars(query.order_by(Checkpoint.round)))


def rolled_back(session: Session, job_id: str) -> list[Checkpoint]:
    """Return the job's checkpoints that repeat an earlier one."""
    query = select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.rolled_back_to.is_not(None))
    return list(session.scalars(query.order_by(Checkpoint.round)))


def pins_of_job(session: Session, job_id: str) -> dict[int, list[str]]:
    """Return the addresses of the proven holders by checkpoint id, ascending."""
    query = select(Pin).join(Checkpoint, Checkpoint.id == Pin.checkpoint_id).where(Checkpoint.job_id == job_id)
    holders: dict[int, list[str]] = {}
    for pin in session.scalars(query.order_by(Pin.checkpoint_id, Pin.provider)):
        holders.setdefault(pin.checkpoint_id, []).append(pin.provider)
    return holders


def jobs_without_a_loss(session: Session) -> Sequence[str]:
    """Return the ids of open, matched jobs with a checkpoint without a loss, oldest first.

    A job that waits for nodes may never train, so its first model is not evaluated.
    """
    unknown = select(Checkpoint.job_id).where(Checkpoint.validation_loss.is_(None))
    query = select(Job.id).where(Job.id.in_(unknown), IS_OPEN, Job.matched_at.is_not(None))
    return session.scalars(query.order_by(Job.created_at, Job.id)).all()


def holders_of_newest(session: Session, job_id: str) -> set[str]:
    newest = select(Checkpoint.id).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round.desc()).limit(1)
    return set(session.scalars(select(Pin.provider).where(Pin.checkpoint_id == newest.scalar_subquery())))


def active_jobs(session: Session) -> list[str]:
    """Return jobs that dispatch may advance; waiting ones until their first checkpoint."""
    has_checkpoint = exists().where(Checkpoint.job_id == Job.id, Checkpoint.round == 0)
    is_ready = (Job.status == JobStatus.MATCHING) & has_checkpoint
    due = select(Job.id).where(IS_OPEN, Job.status != JobStatus.SUBMITTED, ~is_ready)
    return list(session.scalars(due.order_by(Job.id)))
