"""Job reads for other packages."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from market.jobs import repository
from market.jobs.errors import JobNotFound
from market.platform.db.rows import from_row
from zoo_protocol.messages import JobOrder


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job. Amounts in wei; ``times`` by name, None for steps that it has not reached."""

    id: str
    status: str
    reason: str | None
    order: JobOrder
    order_signature: str
    spec_cid: str
    segments: int
    fee_bps: int | None
    clearing_price_wei: int | None
    auction_round_id: int | None
    environment_class: str | None
    times: Mapping[str, datetime | None]


def get(session: Session, job_id: str) -> JobSummary:
    """Return one job. Raises JobNotFound."""
    job = repository.job(session, job_id)
    if job is None:
        raise JobNotFound(f"There is no job {job_id}.", field="job_id")
    return from_row(
        JobSummary,
        job,
        order=JobOrder(
            payer=job.payer,
            specHash=job.spec_hash,
            tier=job.tier_id,
            units=job.units_ordered,
            unitWeight=job.unit_weight_us,
            segments=job.segments,
            samplingBps=job.sampling_bps,
            budget=job.budget_wei,
            maxPrice=job.max_price_wei,
            waitUntil=int(job.wait_until.timestamp()),
            nonce=job.nonce,
        ),
        times={
            "submitted_at": job.created_at,
            "funded_at": job.funded_at,
            "matched_at": job.matched_at,
            "first_step_at": job.first_step_at,
            "trained_at": job.trained_at,
            "settled_at": job.settled_at,
        },
    )


def ids_of(session: Session, payer: str) -> set[str]:
    return repository.ids_of(session, payer)


def count_by_status(session: Session) -> dict[str, int]:
    return repository.count_by_status(session)


def auction_rounds_of_open_jobs(session: Session) -> set[int]:
    """Return the ids of the auction rounds that matched jobs which have not ended."""
    return repository.auction_rounds_of_open_jobs(session)


def payers_of(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    return repository.payers(session, job_ids)
