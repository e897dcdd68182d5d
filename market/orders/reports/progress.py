"""Progress of jobs: one query over units and checkpoints of any number of jobs."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ARRAY, CompoundSelect, Integer, String, any_, bindparam, func, literal, or_, select
from sqlalchemy.orm import Session, aliased

from market.jobs.models import Job
from market.platform.db.base import Hash32
from market.platform.db.prepared import Prepared
from market.training.checkpoints.models import Checkpoint
from market.training.units.models import Unit


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A checkpoint: round, validation loss and error (decimal strings or None), CIDs."""

    round: int
    validation_loss: str | None
    validation_error: str | None
    model_cid: str
    cid: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Units by status; the initial and newest checkpoint, and the newest one with a loss."""

    units: dict[str, int] = field(default_factory=dict)
    checkpoints: list[Mark] = field(default_factory=list)


def _progress() -> CompoundSelect[*tuple[Any, ...]]:
    ids = any_(bindparam("job_ids", type_=ARRAY(Hash32)))
    nothing = [literal(None, type_) for type_ in (Integer, String, String, String, String)]
    units = select(Unit.job_id, Unit.status, func.count(), *nothing).where(Unit.job_id == ids)
    other = aliased(Checkpoint)
    known = select(func.max(other.round)).where(other.job_id == Job.id, other.validation_loss.is_not(None))
    shown = or_(Checkpoint.round.in_([0, Job.current_round]), Checkpoint.round == known.scalar_subquery())
    checkpoints = (
        select(
            Checkpoint.job_id,
            literal(None, String),
            literal(None, Integer),
            Checkpoint.round,
            Checkpoint.validation_loss,
            Checkpoint.validation_error,
            Checkpoint.model_cid,
            Checkpoint.cid,
        )
        .join(Job, Job.id == Checkpoint.job_id)
        .where(Job.id == ids, shown)
    )
    return units.group_by(Unit.job_id, Unit.status).union_all(checkpoints)


_PROGRESS = Prepared(_progress())  # every read of a job runs it


def progress_of(session: Session, job_ids: Collection[str]) -> dict[str, Progress]:
    """Return the progress of each job, checkpoints by round."""
    found = {job_id: Progress() for job_id in job_ids}
    for job_id, status, count, *mark in _PROGRESS.rows(session, {"job_ids": list(job_ids)}):
        if status is not None:
            found[job_id].units[status] = count
        else:
            found[job_id].checkpoints.append(Mark(*mark))
    for one in found.values():
        one.checkpoints.sort()
    return found
