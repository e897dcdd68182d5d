"""Jobs as settlement, verification and events see them, and the moves of a job's settlement."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from market.accounts import spending
from market.domain.lifecycle import JobEvent, JobStatus
from market.jobs import checkpoint_repository, repository
from market.jobs.errors import JobNotFound
from market.jobs.models import Job
from market.jobs.moves import move_job
from zoo_protocol.messages import JobOrder

_ENDED_EARLY = (JobStatus.CANCELLED, JobStatus.EXPIRED, JobStatus.FAILED, JobStatus.DISPUTED)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job. Amounts in wei; ``times`` by name, None where it has not come to that."""

    id: str
    payer: str
    status: str
    reason: str | None
    order: JobOrder
    order_signature: str
    spec: dict[str, Any]
    spec_cid: str
    segments: int
    rounds: int
    escrowed_wei: int
    fee_bps: int | None
    clearing_price_wei: int | None
    auction_round_id: int | None
    environment_class: str | None
    record_cid: str | None
    open_tx: str | None
    settlement_tx: str | None
    times: Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """One checkpoint; ``pins`` are the addresses of its proven holders, ascending. The loss is None until known."""

    round: int
    cid: str
    model_cid: str
    validation_loss: str | None
    pins: list[str]


def get(session: Session, job_id: str) -> JobFacts:
    """Facts of one job.

    Raises:
        JobNotFound: there is none with this id.
    """
    job = repository.job(session, job_id)
    if job is None:
        raise JobNotFound(f"There is no job {job_id}.", field="job_id")
    return _facts(job)


def ids_of(session: Session, payer: str) -> set[str]:
    """Ids of all jobs of a payer."""
    return repository.ids_of(session, payer)


def count_by_status(session: Session) -> dict[str, int]:
    """How many jobs there are of each status."""
    return repository.count_by_status(session)


def payers_of(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    """The payer of each of these jobs."""
    return repository.payers(session, job_ids)


def checkpoints_of(session: Session, job_id: str) -> list[CheckpointFacts]:
    """The job's checkpoints by round."""
    pins = checkpoint_repository.pins_of_job(session, job_id)
    return [
        CheckpointFacts(row.round, row.cid, row.model_cid, row.validation_loss, pins.get(row.id, []))
        for row in checkpoint_repository.checkpoints(session, job_id)
    ]


def start_settling(session: Session) -> None:
    """Move the jobs that were cancelled, expired or failed and whose units are all decided to ``settling``."""
    for job_id in repository.jobs_in(session, _ENDED_EARLY):
        job = repository.lock_job(session, job_id)
        if job is not None and job.status in _ENDED_EARLY and not repository.has_undecided_units(session, job_id):
            move_job(session, job, JobEvent.SETTLE)


def set_record(session: Session, job_id: str, record_cid: str) -> None:
    """Note the CID of the job record that goes into the settlement that ends the job."""
    job = repository.lock_job(session, job_id)
    if job is not None:
        job.record_cid = record_cid


def note_payment(session: Session, job_id: str, *, paid_wei: int, fee_wei: int, refund_wei: int) -> bool:
    """Add what left the job's escrow with finality; negative for what came back. False if the job is unknown."""
    job = repository.lock_job(session, job_id)
    if job is None:
        return False
    job.paid_wei = (job.paid_wei or 0) + paid_wei
    job.fee_wei = (job.fee_wei or 0) + fee_wei
    job.refund_wei = (job.refund_wei or 0) + refund_wei
    return True


def end_settlement(session: Session, job_id: str, *, tx: str, at: datetime) -> bool:
    """Nothing of the job is left in escrow, finally. False if the job is unknown, or was ended before."""
    job = repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.SETTLING:
        return False
    job.settlement_tx, job.settled_at = tx, at
    spending.set_cost(session, job_id, (job.paid_wei or 0) + (job.fee_wei or 0))
    move_job(session, job, JobEvent.SETTLEMENT_FINAL)
    return True


def reopen_settlement(session: Session, job_id: str) -> None:
    """A batch of the job was voided on chain: an ended job is to be settled again. Why it ended stays its reason."""
    job = repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.SETTLED:
        return
    spending.set_cost(session, job_id, job.budget_wei)
    job.settlement_tx = job.settled_at = None
    move_job(session, job, JobEvent.VETO)


def _facts(job: Job) -> JobFacts:
    return JobFacts(
        id=job.id,
        payer=job.payer,
        status=job.status,
        reason=job.reason,
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
        order_signature=job.order_signature,
        spec=job.spec,
        spec_cid=job.spec_cid,
        segments=job.segments,
        rounds=job.rounds,
        escrowed_wei=job.escrowed_wei,
        fee_bps=job.fee_bps,
        clearing_price_wei=job.clearing_price_wei,
        auction_round_id=job.auction_round_id,
        environment_class=job.environment_class,
        record_cid=job.record_cid,
        open_tx=job.open_tx,
        settlement_tx=job.settlement_tx,
        times={
            "submitted_at": job.created_at,
            "funded_at": job.funded_at,
            "matched_at": job.matched_at,
            "first_step_at": job.first_step_at,
            "trained_at": job.trained_at,
            "settled_at": job.settled_at,
        },
    )
