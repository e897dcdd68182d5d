"""Jobs, units and checkpoints as the API shows them."""

from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.domain.money import unit_price
from market.domain.network import NetworkParameters
from market.jobs import repository
from market.jobs.errors import JobNotFound
from market.jobs.models import Job, Unit
from market.jobs.schemas import CheckpointView, JobPage, JobView, Progress, UnitView

_COLUMNS = [name for name in JobView.model_fields if name in Job.__table__.columns]


def visible_job(session: Session, principal: Principal, job_id: str) -> Job:
    """A job that the caller may see: its payer or an admin.

    Raises:
        JobNotFound: there is none, or it is somebody else's.
    """
    job = repository.job(session, job_id)
    if job is None or not (principal.is_admin or principal.address == job.payer):
        raise JobNotFound(f"You have no job {job_id}.")
    return job


def job_view(session: Session, network: NetworkParameters, job: Job) -> JobView:
    """A job with its progress."""
    checkpoints = repository.checkpoints(session, job.id)
    latest = checkpoints[-1] if checkpoints else None
    final = latest if latest is not None and latest.round == job.rounds else None
    price = job.clearing_price_wei
    return JobView(
        **{name: getattr(job, name) for name in _COLUMNS},
        tier=next(tier.name for tier in network.tiers if tier.id == job.tier_id),
        checkpoint={"interval": job.checkpoint_interval, "storage": "ipfs", "redundancy": job.redundancy},
        clearing_price_wei_per_gpu_hour=price,
        unit_price_wei=None if price is None else unit_price(price, job.unit_weight_us),
        progress=Progress(
            round=job.current_round,
            rounds=job.rounds,
            units=repository.unit_counts(session, job.id),
            validation_loss=None if latest is None else latest.validation_loss,
        ),
        initial_loss=checkpoints[0].validation_loss if checkpoints else None,
        final_loss=None if final is None else final.validation_loss,
        final_model_cid=None if final is None else final.model_cid,
    )


def job_page(
    session: Session, network: NetworkParameters, principal: Principal, after: str | None, limit: int
) -> JobPage:
    """The caller's jobs, newest first, beginning after job ``after``. Raises JobNotFound for an unknown ``after``."""
    before = None
    if after is not None:
        last = visible_job(session, principal, after)
        before = (last.created_at, last.id)
    jobs = repository.jobs_of(session, principal.address, limit + 1, before)
    more = len(jobs) > limit
    return JobPage(
        jobs=[job_view(session, network, job) for job in jobs[:limit]], next=jobs[limit - 1].id if more else None
    )


def unit_views(session: Session, job: Job) -> list[UnitView]:
    """All units of a job, in the order (round, slot, id)."""
    return [_unit_view(unit) for unit in repository.units_of_job(session, job.id)]


def checkpoint_views(session: Session, job: Job) -> list[CheckpointView]:
    """All checkpoints of a job with the nodes that proved to hold them, by round."""
    pins = repository.pins_of_job(session, job.id)
    return [
        CheckpointView(
            round=checkpoint.round,
            cid=checkpoint.cid,
            model_cid=checkpoint.model_cid,
            validation_loss=checkpoint.validation_loss,
            pins=pins.get(checkpoint.id, []),
            created_at=checkpoint.created_at,
        )
        for checkpoint in repository.checkpoints(session, job.id)
    ]


def _unit_view(unit: Unit) -> UnitView:
    return UnitView(**{name: getattr(unit, name) for name in UnitView.model_fields})
