"""Jobs, units, checkpoints and metrics as the API shows them."""

from collections.abc import Sequence
from decimal import Decimal

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from market.accounts.organisations import service as organisations
from market.accounts.organisations.service import Role
from market.accounts.service import Principal
from market.domain.lifecycle import UnitStatus
from market.domain.money import unit_price
from market.domain.network import NetworkParameters
from market.jobs import repository as jobs_repository
from market.jobs.access import visible_job
from market.jobs.models import Job
from market.orders.reports.progress import Progress as JobProgress
from market.orders.reports.progress import progress_of
from market.orders.reports.schemas import JobMetrics, RoundMetrics
from market.orders.schemas import CheckpointView, JobFilters, JobPage, JobView, Progress, UnitView
from market.platform.db.rows import from_row
from market.platform.http.errors import UnknownTier
from market.training.checkpoints import repository as checkpoints_repository
from market.training.units import repository as units_repository
from market.training.units.models import Unit

_LOST = (UnitStatus.LOST, UnitStatus.REJECTED)
_PLACES = Decimal("0.000001")


def job_view(session: Session, network: NetworkParameters, job: Job) -> JobView:
    return job_views(session, network, [job])[0]


def job_views(session: Session, network: NetworkParameters, jobs: Sequence[Job]) -> list[JobView]:
    """Return jobs with their progress, by one query."""
    progress = progress_of(session, [job.id for job in jobs]) if jobs else {}
    return [_job_view(network, job, progress[job.id]) for job in jobs]


def new_job_view(network: NetworkParameters, job: Job) -> JobView:
    """Return a job without progress, without a query."""
    return _job_view(network, job, JobProgress())


def _job_view(network: NetworkParameters, job: Job, progress: JobProgress) -> JobView:
    units, ends = progress.units, progress.checkpoints
    latest = ends[-1] if ends else None
    final = latest if latest is not None and latest.round == job.rounds else None
    price = job.clearing_price_wei
    known = next((mark for mark in reversed(ends) if mark.validation_loss), None)
    return from_row(
        JobView,
        job,
        tier=next(tier.name for tier in network.tiers if tier.id == job.tier_id),
        checkpoint={"interval": job.checkpoint_interval, "storage": "ipfs", "redundancy": job.redundancy},
        cancel_requested=job.cancelled_by is not None,
        clearing_price_wei_per_gpu_hour=price,
        unit_price_wei=None if price is None else unit_price(price, job.unit_weight_us),
        progress=Progress(
            round=job.current_round,
            rounds=job.rounds,
            units=units,
            validation_loss=None if known is None else known.validation_loss,
            validation_error=None if known is None else known.validation_error,
        ),
        initial_loss=ends[0].validation_loss if ends else None,
        final_loss=None if final is None else final.validation_loss,
        final_error=None if final is None else final.validation_error,
        final_model_cid=None if final is None else final.model_cid,
    )


def job_page(
    session: Session,
    network: NetworkParameters,
    principal: Principal,
    filters: JobFilters,
) -> JobPage:
    """Return visible jobs, by default the caller's, newest first, after ``filters.after``.

    Raises:
        JobNotFound: the caller may not see the job ``after``.
        OrganisationNotFound: the caller is not a member of the organisation.
        UnknownTier: the network has no such tier.
    """
    before, limit = None, filters.limit
    if filters.after is not None:
        last = visible_job(session, principal, filters.after)
        before = (last.created_at, last.id)
    where = _conditions(session, network, principal, filters)
    jobs = jobs_repository.jobs_where(session, where, limit + 1, before)
    more = len(jobs) > limit
    return JobPage(jobs=job_views(session, network, jobs[:limit]), next=jobs[limit - 1].id if more else None)


def _conditions(
    session: Session, network: NetworkParameters, principal: Principal, filters: JobFilters
) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if filters.organisation is not None:
        organisations.require(session, filters.organisation, principal.address, Role.VIEWER)
        where.append(Job.organisation_id == filters.organisation)
    elif not (filters.all and principal.sees_all_jobs):
        where.append(Job.payer == principal.address)
    if filters.status:
        where.append(Job.status.in_(filters.status))
    if filters.tier is not None:
        where.append(Job.tier_id == _tier_id(network, filters.tier))
    if filters.created_from is not None:
        where.append(Job.created_at >= filters.created_from)
    if filters.created_before is not None:
        where.append(Job.created_at < filters.created_before)
    return where


def _tier_id(network: NetworkParameters, name: str) -> int:
    try:
        return network.tier(name).id
    except KeyError:
        raise UnknownTier(f"tier is {name!r}; expected a tier of this network.", field="tier") from None


def unit_views(session: Session, job: Job) -> list[UnitView]:
    """Return all units of a job by (round, slot, id)."""
    units = units_repository.units_of_job(session, job.id)
    return [from_row(UnitView, unit) for unit in units]


def checkpoint_views(session: Session, job: Job) -> list[CheckpointView]:
    """Return all checkpoints of a job with their proven copies, by round."""
    pins = checkpoints_repository.pins_of_job(session, job.id)
    return [
        from_row(CheckpointView, checkpoint, pins=pins.get(checkpoint.id, []))
        for checkpoint in checkpoints_repository.checkpoints(session, job.id)
    ]


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
                validation_error=checkpoint.validation_error,
                train_loss=_mean([unit.train_loss for unit in done if unit.included]),
                units_included=sum(unit.included is True for unit in done),
                units_excluded=sum(unit.included is False for unit in done),
                units_lost=sum(unit.status in _LOST for unit in done),
                rollback_reason=checkpoint.rollback_reason,
            )
        )
    return JobMetrics(rounds=points)


def _mean(losses: list[str | None]) -> str | None:
    known = [Decimal(loss) for loss in losses if loss is not None]
    return str((sum(known, Decimal()) / len(known)).quantize(_PLACES)) if known else None
