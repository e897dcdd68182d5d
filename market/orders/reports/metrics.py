"""Metrics of a job's training by round."""

from decimal import Decimal

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.jobs.models import Job
from market.orders.reports.schemas import JobMetrics, RoundMetrics
from market.training.checkpoints import repository as checkpoints_repository
from market.training.units import repository as units_repository
from market.training.units.models import Unit

_LOST = (UnitStatus.LOST, UnitStatus.REJECTED)
_PLACES = Decimal("0.000001")


def job_metrics(session: Session, job: Job) -> JobMetrics:
    """Return one point per completed round, and the initial model as round 0."""
    units: dict[int, list[Unit]] = {}
    for unit in units_repository.units_of_job(session, job.id):
        units.setdefault(unit.round, []).append(unit)
    points: list[RoundMetrics] = []
    for checkpoint in checkpoints_repository.checkpoints(session, job.id):
        done = units.get(checkpoint.round - 1, [])  # a checkpoint is the model after its round
        before = points[-1].at if points else None
        points.append(
            RoundMetrics(
                round=checkpoint.round,
                at=checkpoint.created_at,
                seconds=None if before is None else (checkpoint.created_at - before).total_seconds(),
                validation_loss=checkpoint.validation_loss,
                train_loss=_mean([unit.train_loss for unit in done if unit.included]),
                units_included=sum(unit.included is True for unit in done),
                units_excluded=sum(unit.included is False for unit in done),
                units_lost=sum(unit.status in _LOST for unit in done),
            )
        )
    return JobMetrics(rounds=points)


def _mean(losses: list[str | None]) -> str | None:
    known = [Decimal(loss) for loss in losses if loss is not None]
    return str((sum(known, Decimal()) / len(known)).quantize(_PLACES)) if known else None
