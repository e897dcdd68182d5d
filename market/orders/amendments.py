"""Changes to signed jobs: terms, pause, resume, cancellation, ends before the refund."""

from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.chain.contracts.codec import ChainEvent
from market.domain.lifecycle import JobStatus
from market.domain.money import format_amount, unit_price
from market.domain.network import NetworkParameters
from market.jobs import repository as jobs_repository
from market.jobs.access import lock_own_job
from market.jobs.models import Job
from market.orders.errors import InvalidOrder, NotAmendable, NotCancellable, NotPausable, OrderFixed
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.events.service import MARKET, emit, record
from market.training.leases import evaluations
from market.training.leases.service import CANCELLED_BY_PAYER, cancel_now

_WAITING = (JobStatus.SUBMITTED, JobStatus.FUNDED, JobStatus.MATCHING)
_PAUSABLE = (JobStatus.MATCHING, JobStatus.RUNNING)
_CANCELLABLE = (JobStatus.FUNDED, JobStatus.MATCHING, JobStatus.RUNNING)
_PAUSE_EXPIRED = "pause_expired"
_ESCROW_ENDS = "escrow_ends"
_REFUNDED = "escrow_refunded"
_LONGEST_EVALUATION = timedelta(days=1)
"""Of a final model; it takes minutes as a rule, and no longer than a replay if verifiers do not answer."""


def amend(
    session: Session, principal: Principal, job_id: str, max_price: int | None, wait_until: datetime | None
) -> Job:
    """Change a waiting job's price limit (wei per GPU-hour) and end of wait, as ordered.

    Raises:
        JobNotFound, NotPermitted: see :func:`lock_own_job`.
        NotAmendable: the job does not wait.
        OrderFixed: beyond the signed order.
        InvalidOrder: the price rounds to 0 wei per unit, or the time has passed.
    """
    job = lock_own_job(session, principal, job_id)
    if job.status not in _WAITING or job.cancelled_by is not None:
        state = "to be cancelled" if job.cancelled_by is not None else job.status
        raise NotAmendable(f"The job is {state}.", remedy="Amend a job only while it waits for a match.")
    if max_price is not None:
        _require_payable(job, max_price)
        job.amended_max_price_wei = max_price
    if wait_until is not None:
        job.amended_wait_until = _require_within(job, wait_until)
    terms: dict[str, object] = {"max_price": str(job.price_cap_wei), "wait_until": job.expires_at.isoformat()}
    record(session, ("job", job.id), "amended", actor=principal.address, data=terms)
    pause = {} if job.paused_at is None else {"paused": True}  # false says that the job is resumed
    emit(session, job.id, "status", {"status": job.status, "reason": job.reason, **terms, **pause})
    enqueue_after_commit(session, "auctions.clear")
    return job


def pause(session: Session, principal: Principal, job_id: str, network: NetworkParameters) -> Job:
    """Stop offering a job's units. Leased units are finished and paid; then nodes are free.

    A waiting job leaves the order book and expires as before. Idempotent.

    Raises:
        JobNotFound, NotPermitted: see :func:`lock_own_job`.
        NotPausable: it neither waits nor trains, or must end soon to be settled in time.
    """
    job = lock_own_job(session, principal, job_id)
    if job.paused_at is not None and job.status in _PAUSABLE:
        return job
    if job.status not in _PAUSABLE:
        raise NotPausable(f"The job is {job.status}.", remedy="Pause a job only while it waits or trains.")
    if utc_now() >= job.wait_until + longest_pause(network):
        raise NotPausable(
            f"It must end before its escrow is refundable, {network.refund_delay_seconds} s after wait_until.",
            remedy="Let it finish, or cancel it. Delivered units are paid, the rest is refunded.",
        )
    job.paused_at = utc_now()
    _record_pause(session, job, "paused", principal.address)
    if job.status == JobStatus.RUNNING:
        enqueue_after_commit(session, "jobs.dispatch", job.id)
    return job


def resume(session: Session, principal: Principal, job_id: str) -> Job:
    """Return a paused job to the book or to its nodes. Idempotent.

    Raises:
        JobNotFound, NotPermitted: see :func:`lock_own_job`.
        NotPausable: it has ended.
    """
    job = lock_own_job(session, principal, job_id)
    if job.status not in _PAUSABLE:
        raise NotPausable(
            f"The job is {job.status}.",
            remedy=f"Continue from its checkpoint: zoo-compute job extend {job.id} (POST /v1/jobs/{{id}}/extend).",
        )
    if job.paused_at is None:
        return job
    job.paused_at = None
    _record_pause(session, job, "resumed", principal.address)
    if job.status == JobStatus.RUNNING:
        job.round_started_at = utc_now()  # restarts the round's deadline, since no node worked
        enqueue_after_commit(session, "jobs.dispatch", job.id)
    else:
        enqueue_after_commit(session, "auctions.clear")
    return job


def cancel(session: Session, principal: Principal, job_id: str) -> Job:
    """Cancel a job for its payer. Delivered units are paid, the rest is refunded. Idempotent.

    Raises:
        JobNotFound, NotPermitted: see :func:`lock_own_job`.
        NotCancellable: its training is over.
    """
    job = lock_own_job(session, principal, job_id)
    if job.reason == CANCELLED_BY_PAYER:
        return job
    if job.status == JobStatus.SUBMITTED:  # cancelled and refunded once its deposit is final
        job.cancelled_by = principal.address
        return job
    if job.status not in _CANCELLABLE:
        raise NotCancellable(
            f"The job is {job.status}.",
            remedy="Wait for its settlement, which refunds what is not paid to providers.",
        )
    cancel_now(session, job, principal.address)
    return job


def on_escrow_ended(session: Session, event: ChainEvent) -> None:
    """Cancel a job that its payer cancelled in the contract, or whose refund left it no budget."""
    job = jobs_repository.lock_job(session, event.args["jobId"])
    if job is None or job.status not in _CANCELLABLE:
        return
    if event.name == "JobRefunded":
        cancel_now(session, job, MARKET, _REFUNDED)
    else:
        cancel_now(session, job, job.payer)


def longest_pause(network: NetworkParameters) -> timedelta:
    """Return the longest allowed pause after ``wait_until``: half of the refund delay.

    After the refund delay any account can refund an unsettled escrow, and delivered units could not be paid. The other
    half is left for verification and settlement.
    """
    return timedelta(seconds=network.refund_delay_seconds / 2)


def end_long_pauses(database: Database, network: NetworkParameters, now: datetime) -> int:
    """Cancel training jobs with a pause too long for a settlement in time. Return their number."""
    with database.transaction() as session:
        due = jobs_repository.long_paused(session, longest_pause(network), now)
    for job_id in due:
        with database.transaction() as session:
            job = jobs_repository.lock_job(session, job_id)
            if job is not None and job.status == JobStatus.RUNNING and job.paused_at is not None:
                cancel_now(session, job, job.payer, _PAUSE_EXPIRED)
    return len(due)


def end_before_refund(database: Database, network: NetworkParameters, now: datetime) -> int:
    """Cancel training jobs that could not be settled in time otherwise. Return their number.

    Delivered units are verified and paid, the rest is refunded. Jobs whose trained model is evaluated have a day more.
    """
    with database.transaction() as session:
        due = jobs_repository.running_since_order(session, now - timedelta(seconds=network.longest_training_seconds))
    ended = 0
    for job_id in due:
        with database.transaction() as session:
            job = jobs_repository.lock_job(session, job_id)
            asked_at = evaluations.final_asked_at(session, job_id)
            is_trained = asked_at is not None and now < asked_at + _LONGEST_EVALUATION
            if job is not None and job.status == JobStatus.RUNNING and not is_trained:
                cancel_now(session, job, MARKET, _ESCROW_ENDS)
                ended += 1
    return ended


def _require_payable(job: Job, max_price: int) -> None:
    if max_price > job.max_price_wei:
        raise OrderFixed(
            f"max_price is above the escrowed order's {format_amount(job.max_price_wei)} per GPU-hour.",
            field="max_price",
        )
    if unit_price(max_price, job.unit_weight_us) == 0:
        raise InvalidOrder(
            f"max_price is {max_price}, which rounds to 0 wei per unit.", field="max_price", remedy="Give a higher one."
        )


def _require_within(job: Job, wait_until: datetime) -> datetime:
    whole = wait_until.astimezone(UTC).replace(microsecond=0)
    if whole > job.wait_until:
        raise OrderFixed(f"wait_until is after the escrowed order's {job.wait_until.isoformat()}.", field="wait_until")
    if whole <= utc_now():
        raise InvalidOrder("wait_until has passed.", field="wait_until", remedy="To end the wait now, cancel the job.")
    return whole


def _record_pause(session: Session, job: Job, event: str, actor: str) -> None:
    record(session, ("job", job.id), event, actor=actor)
    emit(session, job.id, "status", {"status": job.status, "reason": job.reason, "paused": job.paused_at is not None})
