"""Leases: create, pull, heartbeat, fail, and the end of those of a job that stops training.

A lease is addressed to one node, which pulls it, keeps it by heartbeats and ends it. Every call after the pull carries
the lease's token. A call with an expired lease is refused (``lease-lost``) even before the sweep ends the lease. A node
that returns late therefore cannot deliver a unit that another node holds.
"""

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy.orm import Session

from market.domain.lifecycle import (
    NODE_SILENT,
    NODE_STOPPING,
    OUT_OF_MEMORY,
    JobEvent,
    JobStatus,
    LeaseEvent,
    LeaseStatus,
    UnitEvent,
    UnitStatus,
)
from market.domain.verification.sampling import JOBS_FAULT
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.db.session import enqueue_after_commit
from market.platform.events.service import emit
from market.providers import service as providers
from market.providers.record import reliability
from market.training.leases import repository as leases_repository
from market.training.leases.errors import LeaseLost
from market.training.leases.models import Lease
from market.training.leases.schemas import LeaseKind, LeaseView
from market.training.leases.transitions import transition_lease
from market.training.leases.verification_hooks import hooks
from market.training.units import repository as units_repository
from market.training.units import slot_states
from market.training.units.models import Unit
from market.training.units.service import settle_if_decided
from market.training.units.transitions import transition_unit
from zoo_protocol.hashing import to_hex

UPLOAD_OVERDUE, START_LOST = "upload_overdue", "start_lost"
CANCELLED_BY_PAYER = "cancelled_by_payer"
_FAILED = "failed"

_NODES_FAULT = (NODE_SILENT, UPLOAD_OVERDUE)  # for other reasons the market ended the lease


def create_lease(
    session: Session,
    *,
    kind: LeaseKind | str,
    holder: str,
    job_id: str,
    task: dict[str, Any],
    unit_id: int | None = None,
    replay_id: int | None = None,
    checkpoint_id: int | None = None,
    seconds: float,
) -> Lease:
    """Offer work to a node. The offer expires after ``seconds``."""
    lease = Lease(
        id=str(uuid4()),
        kind=LeaseKind(kind),
        holder=holder,
        status=LeaseStatus.OFFERED,
        token=to_hex(secrets.token_bytes(32)),
        task=task,
        job_id=job_id,
        unit_id=unit_id,
        replay_id=replay_id,
        checkpoint_id=checkpoint_id,
        step=0,
        expires_at=utc_now() + timedelta(seconds=seconds),
    )
    session.add(lease)
    session.flush()
    return lease


def has_offer(session: Session, address: str, kinds: Sequence[LeaseKind]) -> bool:
    """Return True if :func:`next_lease` may find a lease; opens no transaction if False."""
    return any(kind in kinds for _, kind in leases_repository.offers(session, [address], utc_now()))


def next_lease(session: Session, address: str, kinds: Sequence[LeaseKind], lease_seconds: float) -> LeaseView | None:
    """Pull the node's oldest offered lease, if any. From now on it must heartbeat."""
    now = utc_now()
    lease = leases_repository.lock_next_lease(session, address, kinds, now)
    if lease is None:
        return None
    transition_lease(session, lease, LeaseEvent.PULL, at=now)
    lease.pulled_at = now
    lease.expires_at = now + timedelta(seconds=lease_seconds)
    return from_row(LeaseView, lease, lease_seconds=lease_seconds)


def require_held(lease: Lease | None, address: str, token: str, now: datetime) -> Lease:
    """Return ``lease`` if the caller may act on it. Raises LeaseLost."""
    if lease is None or lease.holder != address or not hmac.compare_digest(lease.token, token):
        raise LeaseLost("You hold no lease with this id and token.", field="token")
    if lease.status != LeaseStatus.ACTIVE:
        reason = f" ({lease.reason})" if lease.reason else ""
        raise LeaseLost(f"The lease is {lease.status}{reason}.")
    if lease.expires_at <= now:
        raise LeaseLost("The lease has expired: no heartbeat came in time.")
    return lease


def lock_held(session: Session, lease_id: str, address: str, token: str) -> tuple[Job, Unit | None, Lease]:
    """Lock and return the caller's lease with its job and unit. Raises LeaseLost."""
    locked = leases_repository.lock_lease(session, lease_id)
    require_held(None if locked is None else locked[2], address, token, utc_now())
    assert locked is not None
    return locked


def heartbeat(session: Session, lease_id: str, address: str, token: str, step: int, lease_seconds: float) -> datetime:
    """Extend the lease and record progress; return the new expiry. Raises LeaseLost."""
    now = utc_now()
    seen = require_held(leases_repository.lease(session, lease_id), address, token, now)
    if step > 0 and seen.kind == LeaseKind.TRAIN:
        mark_first_step(session, seen.job_id, now)
    lease = require_held(leases_repository.lock_lease_alone(session, lease_id), address, token, now)
    lease.expires_at = now + timedelta(seconds=lease_seconds)
    if step > lease.step:
        lease.step = step
        if lease.kind == LeaseKind.TRAIN:
            place = {"round": lease.task["round"], "slot": lease.task["slot"]}
            emit(session, lease.job_id, "step", {**place, "provider": address, "step": step})
    return lease.expires_at


def mark_first_step(session: Session, job_id: str, now: datetime) -> None:
    """Record the job's first training step; locks the job, so call it before any lease lock."""
    job = jobs_repository.job(session, job_id)
    if job is not None and job.first_step_at is None:
        job = jobs_repository.lock_job(session, job_id)
        if job is not None and job.first_step_at is None:
            job.first_step_at = now


def fail(session: Session, lease_id: str, address: str, token: str, code: str, detail: str) -> None:
    """End the caller's lease: its node cannot do the work or stops. Raises LeaseLost."""
    job, unit, lease = lock_held(session, lease_id, address, token)
    if code == NODE_STOPPING:
        providers.record_shutdown(session, address)
    if code == units_repository.ROUND_CLOSED:  # the market's own reason: it replaces hung nodes only once
        code = _FAILED
    abandon(session, job, unit, lease, LeaseEvent.FAIL, code, detail)


def abandon(
    session: Session, job: Job, unit: Unit | None, lease: Lease, event: LeaseEvent, reason: str, detail: str = ""
) -> None:
    """End a lease without a result and offer its work again. Job, unit and lease are locked."""
    now = utc_now()
    transition_lease(session, lease, event, at=now, reason=reason, detail=detail)
    if lease.kind == LeaseKind.REPLAY:
        hooks().replay_abandoned(session, lease)
    elif lease.kind == LeaseKind.REVEAL:
        hooks().reveal_abandoned(session, lease)
    elif lease.kind in (LeaseKind.PIN, LeaseKind.EVALUATE):
        enqueue_after_commit(session, "jobs.dispatch", job.id)
    elif lease.kind == LeaseKind.TRAIN and unit is not None and unit.status in units_repository.OPEN_UNIT:
        is_blameless = _is_blamed_on_job(unit, reason) or _ran_out_of_memory(session, unit, reason)
        transition_unit(session, unit, UnitEvent.LOSE, at=now, reason=reason)
        if unit.payload_cid is not None:
            _withdraw_declaration(session, unit)
        if reason == slot_states.MISSING:
            slot_states.reset_state(session, unit)
        if (event is LeaseEvent.FAIL and not is_blameless) or reason in _NODES_FAULT:
            reliability.record_lost_unit(session, lease.holder, now)
        _free_slot(session, job.id, lease.holder)
        settle_if_decided(session, job, now)


def _is_blamed_on_job(unit: Unit, reason: str) -> bool:
    """Return whether the job prevents the unit, unless another node proves otherwise.

    A committed unit has read its data, and has a finite end.
    """
    return reason in JOBS_FAULT and unit.status != UnitStatus.COMMITTED


def _ran_out_of_memory(session: Session, unit: Unit, reason: str) -> bool:
    """Return whether the unit is the node's first of the job that its memory cannot hold.

    Later ones count: a node that knows its memory would otherwise hold the job up for free.
    """
    if reason != OUT_OF_MEMORY or unit.status == UnitStatus.COMMITTED:
        return False
    return not units_repository.has_lost_for(session, unit.job_id, unit.provider, reason)


def _withdraw_declaration(session: Session, unit: Unit) -> None:
    """Lose the later units that started from a lost unit's declared state, then clear that."""
    for later in units_repository.units_started_from(session, unit):
        kinds = [LeaseKind.TRAIN]
        for locked in leases_repository.lock_open_leases(session, unit.job_id, unit_id=later.id, kinds=kinds):
            abandon(session, *locked, LeaseEvent.EXPIRE, START_LOST)
    unit.payload_cid = unit.slot_state_cid = unit.slot_state_digest = None


def stop_training(session: Session, job: Job, reason: str, *, keep_committed: bool = False) -> None:
    """End the job's training and evaluations, lose undelivered units and free its nodes.

    The caller has locked the job and moved it out of ``running``.

    Args:
        keep_committed: keep the leases of committed units, which are being uploaded. Their replicas are freed after
            the upload or the loss, at the latest by :func:`market.training.leases.expiry.expire_uploads`.
    """
    kinds = LeaseKind.TRAIN, LeaseKind.FOLLOW, LeaseKind.EVALUATE
    for locked in leases_repository.lock_open_leases(session, job.id, kinds=kinds):
        if not (keep_committed and locked[1] is not None and locked[1].status == UnitStatus.COMMITTED):
            abandon(session, *locked, LeaseEvent.EXPIRE, reason)
    uploading = units_repository.committed_slots(session, job.id)
    for slot in jobs_repository.slots(session, job.id):
        if slot.slot not in uploading:
            slot.provider = None
    settle_if_decided(session, job, utc_now())


def cancel_now(session: Session, job: Job, actor: str, reason: str = CANCELLED_BY_PAYER) -> None:
    """Cancel a funded, matching or running job whose row the caller has locked."""
    trains = job.status == JobStatus.RUNNING
    transition_job(session, job, JobEvent.CANCEL, reason=reason, actor=actor)
    if trains:
        stop_training(session, job, reason)
    else:
        enqueue_after_commit(session, "settlement.settle")


def remove_node_from_jobs(session: Session, provider: str, reason: str) -> None:
    """Free the node's replicas in all running jobs and end all its open leases with ``reason``."""
    for job_id in leases_repository.jobs_held_by(session, provider):
        jobs_repository.lock_job(session, job_id)
        for locked in leases_repository.lock_open_leases(session, job_id, holder=provider):
            abandon(session, *locked, LeaseEvent.EXPIRE, reason)
        _free_slot(session, job_id, provider)


def free_after_training(session: Session, job: Job, provider: str) -> None:
    """Free the node once its last upload is delivered or lost, if the job has stopped training."""
    if job.status != JobStatus.RUNNING:
        _free_slot(session, job.id, provider)


def _free_slot(session: Session, job_id: str, provider: str) -> None:
    for slot in jobs_repository.slots(session, job_id):
        if slot.provider == provider:
            slot.provider = None
            enqueue_after_commit(session, "jobs.dispatch", job_id)


def busy_providers(session: Session) -> set[str]:
    return jobs_repository.slot_holders(session)


def open_work(session: Session, provider: str) -> tuple[list[str], int]:
    """Return the ids of jobs that a node works for, and its number of undecided units."""
    return leases_repository.jobs_held_by(session, provider), units_repository.undecided_units_of(session, provider)


def is_at_work(session: Session, provider: str) -> bool:
    """Return True if a node is at work; if False, it stays free until this transaction ends."""
    if leases_repository.is_at_work(session, provider):  # without the lock: nodes call this with every heartbeat
        return True
    jobs_repository.lock_placement(session)
    return leases_repository.is_at_work(session, provider)
