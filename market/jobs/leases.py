"""Leases: how work reaches a node, and what happens when the node goes silent or gives up.

A lease is addressed to one node, which pulls it, keeps it by heartbeats and ends it. Every call after the pull carries
the lease's token. A lease whose time has passed is gone, even before the sweep has noticed: a call with it is refused
(``lease-lost``), so a node that was away never delivers into somebody else's place.
"""

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from sqlalchemy.orm import Session

from market.db.base import utc_now
from market.db.session import Database, wake_after_commit
from market.domain.lifecycle import (
    NODE_SILENT,
    NODE_STOPPING,
    REPLAY_OVERDUE,
    JobStatus,
    LeaseEvent,
    LeaseStatus,
    UnitEvent,
    UnitStatus,
)
from market.domain.verification import DIVERGED
from market.events.service import emit
from market.jobs import lease_repository, repository, slot_states
from market.jobs.errors import LeaseLost
from market.jobs.lease_schemas import LeaseKind, LeaseView
from market.jobs.models import Job, Lease, Unit
from market.jobs.moves import move_lease, move_unit
from market.jobs.replaying import hooks
from market.jobs.units import settle_if_decided
from market.outages import service as outages
from market.providers import service as providers
from training_gym.config import TrainingSpec
from training_gym.distributed.trace import boundary_state_bytes
from training_gym.slot_state import slot_state_bytes
from zoo_protocol import reveals
from zoo_protocol.hashing import to_hex

UPLOAD_OVERDUE, START_LOST = "upload_overdue", "start_lost"
_log = structlog.get_logger(__name__)

_NODES_FAULT = (NODE_SILENT, UPLOAD_OVERDUE)  # otherwise it was told to stop, because its job ends or it was jailed


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
    """Offer work to a node, which has ``seconds`` to pull it."""
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


def is_offered_some(session: Session, address: str, kinds: Sequence[LeaseKind]) -> bool:
    """Whether :func:`next_lease` may find something. Most often it does not, and this takes no transaction."""
    return any(kind in kinds for _, kind in lease_repository.offers(session, [address], utc_now()))


def next_lease(session: Session, address: str, kinds: Sequence[LeaseKind], lease_seconds: float) -> LeaseView | None:
    """Hand the node the oldest lease offered to it, if there is one. From now on it must heartbeat."""
    now = utc_now()
    lease = lease_repository.lock_next_lease(session, address, kinds, now)
    if lease is None:
        return None
    move_lease(session, lease, LeaseEvent.PULL, at=now)
    lease.pulled_at = now
    lease.expires_at = now + timedelta(seconds=lease_seconds)
    return LeaseView(
        id=lease.id,
        kind=LeaseKind(lease.kind),
        job_id=lease.job_id,
        token=lease.token,
        task=lease.task,
        expires_at=lease.expires_at,
        lease_seconds=lease_seconds,
    )


def require_held(lease: Lease | None, address: str, token: str, now: datetime) -> Lease:
    """``lease``, if the caller may still act on it.

    Raises:
        LeaseLost: no such lease, another holder's, a wrong token, ended, or out of time.
    """
    if lease is None or lease.holder != address or not hmac.compare_digest(lease.token, token):
        raise LeaseLost("No lease with this id and token is yours.", field="token")
    if lease.status != LeaseStatus.ACTIVE:
        reason = f" ({lease.reason})" if lease.reason else ""
        raise LeaseLost(f"The lease is {lease.status}{reason}.")
    if lease.expires_at <= now:
        raise LeaseLost("The lease's time has passed without a heartbeat.")
    return lease


def lock_held(session: Session, lease_id: str, address: str, token: str) -> tuple[Job, Unit | None, Lease]:
    """The lease that the caller holds, with its job and unit, all locked. Raises LeaseLost."""
    locked = lease_repository.lock_lease(session, lease_id)
    require_held(None if locked is None else locked[2], address, token, utc_now())
    assert locked is not None
    return locked


def heartbeat(session: Session, lease_id: str, address: str, token: str, step: int, lease_seconds: float) -> datetime:
    """Extend the lease and note progress; returns the new end. Raises LeaseLost."""
    now = utc_now()
    seen = require_held(lease_repository.lease(session, lease_id), address, token, now)
    if step > 0 and seen.kind == LeaseKind.TRAIN:
        mark_first_step(session, seen.job_id, now)
    lease = require_held(lease_repository.lock_lease_alone(session, lease_id), address, token, now)
    lease.expires_at = now + timedelta(seconds=lease_seconds)
    if step > lease.step:
        lease.step = step
        if lease.kind == LeaseKind.TRAIN:
            place = {"round": lease.task["round"], "slot": lease.task["slot"]}
            emit(session, lease.job_id, "step", {**place, "provider": address, "step": step})
    return lease.expires_at


def mark_first_step(session: Session, job_id: str, now: datetime) -> None:
    """Note when the job's first training step was reported. Takes the job's lock, so call it before a lease's."""
    job = repository.job(session, job_id)
    if job is not None and job.first_step_at is None:
        job = repository.lock_job(session, job_id)
        if job is not None and job.first_step_at is None:
            job.first_step_at = now


def fail(session: Session, lease_id: str, address: str, token: str, code: str, detail: str) -> None:
    """The node says that it cannot do the work, or is about to stop. Raises LeaseLost."""
    job, unit, lease = lock_held(session, lease_id, address, token)
    if code == NODE_STOPPING:
        providers.note_gone(session, address)
    abandon(session, job, unit, lease, LeaseEvent.FAIL, code, detail)


def report_api(session: Session, lease_seconds: float) -> None:
    """The API takes calls now. What ran out while it did not begins anew: nobody could have kept it."""
    outage = outages.report(session, outages.API, outages.api_gap(lease_seconds))
    if outage is not None:
        until = outage.ends_at + timedelta(seconds=lease_seconds)
        renewed = lease_repository.extend_leases(session, outage.starts_at, until)
        _log.warning("the API was away", since=str(outage.starts_at), until=str(outage.ends_at), leases=renewed)


def expire_due(database: Database, now: datetime) -> int:
    """End every lease whose time has passed, each in its own transaction; returns how many there were."""
    with database.transaction() as session:
        due = lease_repository.expired_leases(session, now)
    _expire(database, due, NODE_SILENT, ran_out_by=now)
    return len(due)


def expire_uploads(database: Database, committed_before: datetime) -> int:
    """Lose every unit that was committed before then and is still not uploaded; returns how many there were.

    Its commitment was acknowledged and must enter a window in time, and after that it is too late to upload. Time in
    which the API was away does not count.
    """
    with database.transaction() as session:
        old = lease_repository.overdue_uploads(session, committed_before)
        due = [lease_id for lease_id, since in old if since + _away(session, since) < committed_before]
    _expire(database, due, UPLOAD_OVERDUE)
    return len(due)


def was_busy(session: Session, lease_id: str) -> bool:
    """Whether the holder of a replay's lease never pulled it because it had another one in hand: a node replays one
    segment at a time."""
    lease = lease_repository.lease(session, lease_id)
    assert lease is not None  # a lease goes only long after its job has ended
    return lease.pulled_at is None and lease_repository.had_in_hand(session, lease)


def expire_replays(database: Database, longest: timedelta, now: datetime) -> int:
    """End every replay that its verifier holds for longer than ``longest`` and the time that its files take: heartbeats
    keep a lease, and nobody decides over the unit before it has ended. Time in which the API was away does not count.
    Returns how many there were."""
    with database.transaction() as session:
        old = lease_repository.replays_since(session, now - longest)
        due = [id_ for id_, since, spec in old if since + longest + _transfer(spec) + _away(session, since) <= now]
    _expire(database, due, REPLAY_OVERDUE)
    return len(due)


def _expire(database: Database, lease_ids: Sequence[str], reason: str, *, ran_out_by: datetime | None = None) -> None:
    """End those of the leases that are still open, each in its own transaction; with ``ran_out_by`` only those that no
    heartbeat has extended beyond it meanwhile."""
    for lease_id in lease_ids:
        with database.transaction() as session:
            locked = lease_repository.lock_lease(session, lease_id)
            if not locked or locked[2].status not in repository.OPEN_LEASE:
                continue
            if ran_out_by is None or locked[2].expires_at <= ran_out_by:
                abandon(session, *locked, LeaseEvent.EXPIRE, reason)


def _away(session: Session, since: datetime) -> timedelta:
    """For how long no node could call the market since then."""
    return outages.time_away(session, since, utc_now(), [outages.API])


def _transfer(spec: dict[str, Any]) -> timedelta:
    """To fetch what a replay of a job's segment starts from, and in another class to show where it ends."""
    parsed = TrainingSpec.from_dict(spec)
    size = boundary_state_bytes(parsed) + slot_state_bytes(parsed)
    return timedelta(seconds=2 * size / reveals.BYTES_PER_SECOND)


def abandon(
    session: Session, job: Job, unit: Unit | None, lease: Lease, event: LeaseEvent, reason: str, detail: str = ""
) -> None:
    """End an open lease without its result; the caller has locked all three. What it was for goes to somebody else."""
    now = utc_now()
    move_lease(session, lease, event, at=now, reason=reason, detail=detail)
    if lease.kind == LeaseKind.REPLAY:
        hooks().replay_abandoned(session, lease)
    elif lease.kind == LeaseKind.REVEAL:
        hooks().reveal_abandoned(session, lease)
    elif lease.kind == LeaseKind.PIN:
        wake_after_commit(session, "jobs.dispatch", job.id)
    elif lease.kind == LeaseKind.TRAIN and unit is not None and unit.status in repository.OPEN_UNIT:
        move_unit(session, unit, UnitEvent.LOSE, at=now, reason=reason)
        if unit.payload_cid is not None:
            _withdraw(session, unit)
        if reason == slot_states.MISSING:
            slot_states.give_up(session, unit)
        if (event is LeaseEvent.FAIL and reason != DIVERGED) or reason in _NODES_FAULT:
            providers.note_lost(session, lease.holder, now)
        _free_slot(session, job.id, lease.holder)
        settle_if_decided(session, job, now)


def _withdraw(session: Session, unit: Unit) -> None:
    """Nobody will ever see what a lost unit declared at its commitment: who started from it has lost its unit too."""
    for later in repository.started_from(session, unit):
        for lease_id in lease_repository.open_leases(session, unit.job_id, unit_id=later.id, kinds=[LeaseKind.TRAIN]):
            locked = lease_repository.lock_lease(session, lease_id)
            if locked and locked[2].status in repository.OPEN_LEASE:
                abandon(session, *locked, LeaseEvent.EXPIRE, START_LOST)
    unit.payload_cid = unit.slot_state_cid = unit.slot_state_digest = None


def vacate(session: Session, provider: str, reason: str) -> None:
    """Take the node out of all running jobs: its slots become free and all its open leases end, for ``reason``."""
    for job_id in repository.jobs_held_by(session, provider):
        repository.lock_job(session, job_id)
        for lease_id in lease_repository.open_leases(session, job_id, holder=provider):
            locked = lease_repository.lock_lease(session, lease_id)
            if locked and locked[2].status in repository.OPEN_LEASE:
                abandon(session, *locked, LeaseEvent.EXPIRE, reason)
        _free_slot(session, job_id, provider)


def stop_training(session: Session, job: Job, reason: str, *, keep_committed: bool = False) -> None:
    """The job trains no more: end its train and follow leases, lose what was not delivered and free its nodes.

    The caller has locked the job and moved it out of ``running``.

    Args:
        keep_committed: units that were committed, and are being uploaded, stay with their nodes, whose slots are freed
            once they are uploaded or lost (:func:`expire_uploads` at the latest).
    """
    for lease_id in lease_repository.open_leases(session, job.id, kinds=(LeaseKind.TRAIN, LeaseKind.FOLLOW)):
        locked = lease_repository.lock_lease(session, lease_id)
        if locked is None or locked[2].status not in repository.OPEN_LEASE:
            continue
        if not (keep_committed and locked[1] is not None and locked[1].status == UnitStatus.COMMITTED):
            abandon(session, *locked, LeaseEvent.EXPIRE, reason)
    uploading = repository.committed_slots(session, job.id)
    for slot in repository.slots(session, job.id):
        if slot.slot not in uploading:
            slot.provider = None
    settle_if_decided(session, job, utc_now())


def free_after_training(session: Session, job: Job, provider: str) -> None:
    """A job that trains no more has got, or lost, what this node was still uploading."""
    if job.status != JobStatus.RUNNING:
        _free_slot(session, job.id, provider)


def _free_slot(session: Session, job_id: str, provider: str) -> None:
    for slot in repository.slots(session, job_id):
        if slot.provider == provider:
            slot.provider = None
            wake_after_commit(session, "jobs.dispatch", job_id)
