"""Advance a job by one step. Idempotent and safe to call concurrently.

One transaction under the job's lock fills vacant replicas, offers the round's units and enqueues a due aggregation.
Aggregation and the first checkpoint run outside that transaction: they use storage and take long.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.lifecycle import JobEvent, JobStatus, UnitStatus
from market.domain.money import may_start_unit, unit_price
from market.domain.network import BPS, MIN_FRAUD_PENALTY_BPS
from market.domain.verification.sampling import DIVERGED
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.events.service import MARKET
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageUnavailable
from market.providers import service as providers
from market.providers.outages import service as outages
from market.settings import Settings
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.leases import evaluations
from market.training.leases.schemas import LeaseKind
from market.training.leases.service import cancel_now, create_lease, stop_training
from market.training.matching import spares
from market.training.replication import pins, slot_state_uploads
from market.training.rounds.first_checkpoint import STARTING, build_initial_checkpoint
from market.training.rounds.state import REPORT_OF_ANOTHER_JOB, RoundState, round_state
from market.training.units import repository as units_repository
from market.training.units import slot_states
from market.training.units.facts import unit_spec
from market.training.units.models import Unit
from market.training.units.service import settle_if_decided
from training_gym.compress.link_adaptation import choose_top_k
from training_gym.exchange import deadlines
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_unit

INPUTS_UNUSABLE = "inputs_unusable"
STORAGE_PATIENCE = timedelta(hours=3)
"""Time at work after which a job ends whose inputs storage does not provide. It holds its nodes."""


def dispatch(database: Database, settings: Settings, storage: Storage, job_id: str) -> None:
    """Do all steps that are due for a job in its current status."""
    with database.transaction() as session:
        job = jobs_repository.job(session, job_id)
        starts = job is not None and job.status in STARTING
        needs_checkpoint = starts and checkpoints_repository.checkpoint(session, job_id, 0) is None
        matched_at = job.matched_at if job is not None and needs_checkpoint else None
        is_overdue = matched_at and outages.time_at_work(session, matched_at, utc_now()) > STORAGE_PATIENCE
    unusable = None
    if needs_checkpoint:
        unusable = INPUTS_UNUSABLE if is_overdue else _build_first_checkpoint(database, settings, storage, job_id)
    with database.transaction() as session:
        job = jobs_repository.lock_job(session, job_id)
        if job is None:
            return
        if unusable is not None:
            if job.status == JobStatus.RUNNING:
                fail_job(session, job, unusable)
            elif job.status == JobStatus.MATCHING:
                cancel_now(session, job, MARKET, unusable)
        if job.status == JobStatus.RUNNING:
            _advance_round(session, settings, job)
        if job.status in (JobStatus.RUNNING, JobStatus.VERIFYING):
            pins.request_checkpoint_pins(session, settings, job)
            pins.request_state_pins(session, settings, job)
        if job.status == JobStatus.RUNNING:
            slot_state_uploads.request_uploads(session, settings, job)
        settle_if_decided(session, job, utc_now())


def _build_first_checkpoint(database: Database, settings: Settings, storage: Storage, job_id: str) -> str | None:
    """Build it as :func:`build_initial_checkpoint`; record whether storage works when it fails."""
    began = utc_now()
    try:
        return build_initial_checkpoint(database, settings, storage, job_id)
    except StorageUnavailable:
        works = storage.accepts_writes()  # it can refuse the content alone
        with database.transaction() as session:
            outages.record_storage_check(session, works, began)
        raise


def due_jobs(database: Database) -> list[str]:
    """Return the ids of jobs that :func:`dispatch` may advance. The sweep calls it for each."""
    with database.transaction() as session:
        return checkpoints_repository.active_jobs(session)


def round_to_offer(
    state: RoundState, now: datetime, own: UnitStatus | None, following: UnitStatus | None, *, next_round_open: bool
) -> int | None:
    """Return the round of a replica's next unit: 0 current, 1 next, None for none now.

    Args:
        own, following: status of the replica's unit of this round and of the next; None without a usable unit.
        next_round_open: a unit of the next round that is offered now can finish in time. Otherwise the replica waits:
            an offer that is late in every round would delay all later ones.
    """
    if own in units_repository.OPEN_UNIT or following in units_repository.OPEN_UNIT:
        return None
    if own is None and (following is None or state.lacks_quorum) and state.can_finish_in_time(now):
        return 0
    return 1 if next_round_open and following is None else None


def _advance_round(session: Session, settings: Settings, job: Job) -> None:
    checkpoint = checkpoints_repository.checkpoint(session, job.id, job.current_round)
    if checkpoint is None:
        return
    units = units_repository.units_of_round(session, job.id, job.current_round)
    next_units = units_repository.units_of_round(session, job.id, job.current_round + 1)
    slots = jobs_repository.slots(session, job.id)
    if job.paused_at is not None:
        _drain_paused_job(session, settings, job, slots, units, next_units)
        return
    state, now = round_state(session, job, units, settings), utc_now()
    if state.can_close(now) and evaluations.open_evaluations(session, job.id, final=True):
        _free_idle_nodes(session, job, slots, units)
    else:
        _offer_units(session, settings, job, slots, units, next_units, checkpoint)
        spares.offer_prefetch_leases(session, settings, job, checkpoint)
        state, now = round_state(session, job, units, settings), utc_now()
    if state.can_close(now):
        enqueue_after_commit(session, "jobs.aggregate", job.id)
    elif state.is_infeasible(now) and state.is_infeasible(now - outages.outage_time(session, state.started_at, now)):
        _handle_infeasible_round(session, settings, job, units, state, now)


def _handle_infeasible_round(
    session: Session, settings: Settings, job: Job, units: Sequence[Unit], state: RoundState, now: datetime
) -> None:
    """Restart the timeout if an evaluation or outage took it, or nodes are replaced; else fail."""
    since, asked_at = job.round_started_at or job.created_at, evaluations.final_asked_at(session, job.id)
    restarts = (asked_at or since) > since or (state.open and providers.had_outage(session, since, now))
    delivered = {unit.slot for unit in units if unit.status in units_repository.DELIVERED_UNIT}
    given_up = {unit.slot for unit in units if unit.reason == DIVERGED} - delivered
    has_diverged = job.nodes - len(given_up) < state.quorum
    stuck = [unit for unit in units if unit.created_at <= now - state.deadline]
    if restarts or (not has_diverged and spares.replace_nodes(session, settings, job, units, stuck)):
        job.round_started_at = now
    else:
        fail_job(session, job, DIVERGED if has_diverged else "no_capacity")


def _free_idle_nodes(session: Session, job: Job, slots: Sequence[Slot], units: Sequence[Unit]) -> None:
    """Free the nodes that no work is left for: of a paused job, or while verifiers evaluate."""
    at_work = {unit.slot for unit in units if unit.status in units_repository.OPEN_UNIT}
    at_work |= units_repository.late_slots(session, job.id, job.current_round)
    for slot in slots:
        if slot.slot not in at_work:
            slot.provider = None


def _offer_units(
    session: Session,
    settings: Settings,
    job: Job,
    slots: list[Slot],
    units: list[Unit],
    next_units: list[Unit],
    checkpoint: Checkpoint,
) -> None:
    """Fill vacant replicas and offer each its unit of this round (into ``units``) or the next."""
    state, now = round_state(session, job, units, settings), utc_now()
    own, following = _usable_units(units), _usable_units(next_units)
    # A late unit's replica state starts the replica's next unit, so that one waits for it.
    waiting = units_repository.late_slots(session, job.id, job.current_round)
    next_round_open = (
        slot_states.continues_on_delivery(job)
        and job.current_round + 1 < job.rounds
        and state.can_start_next_round(now, deadlines.round_start([unit.created_at for unit in next_units], job.nodes))
    )

    def next_unit_round(slot: Slot) -> int | None:
        statuses = [_effective_status(slot, units.get(slot.slot)) for units in (own, following)]
        return None if slot.slot in waiting else round_to_offer(state, now, *statuses, next_round_open=next_round_open)

    # A replica too late for this round gets its node now and its unit in the next round, if there is one.
    placed = own.keys() | following.keys() | waiting if job.current_round + 1 < job.rounds else range(job.nodes)
    idle = [slot for slot in slots if next_unit_round(slot) is not None or slot.slot not in placed]
    spares.drop_overpriced_nodes(session, settings, job, idle)
    spares.drop_ineligible_nodes(session, settings, job, idle)
    spares.assign_spares(session, settings, job, slots, idle, [*units, *next_units])
    for slot in slots:
        which = None if slot.provider is None else next_unit_round(slot)
        if which is None or slot.provider is None or not _may_start(session, job, slot.provider):
            continue
        before = own.get(slot.slot)
        eager = None if before is None or not which or slot_states.is_rolled_back(before) else before.payload_cid
        unit = _offer_unit(session, settings, job, slot, slot.provider, checkpoint, job.current_round + which, eager)
        if not which:
            units.append(unit)
            state = replace(state, open=state.open + 1)


def _may_start(session: Session, job: Job, provider: str) -> bool:
    """Return True if the provider's stake covers its undecided units and one more."""
    undecided = units_repository.undecided_wei(session, provider)
    gross = unit_price(job.clearing_price_wei or 0, job.unit_weight_us)
    penalty = providers.at_risk(session, provider) * MIN_FRAUD_PENALTY_BPS // BPS
    return may_start_unit(undecided, gross, penalty, job.segments, job.sampling_bps)


def _effective_status(slot: Slot, unit: Unit | None) -> UnitStatus | None:
    """Return the unit's status; its own node may continue from a declared commitment."""
    if unit is None:
        return None
    is_declared = unit.status == UnitStatus.COMMITTED and unit.payload_cid is not None
    return UnitStatus.UPLOADED if is_declared and unit.provider == slot.provider else UnitStatus(unit.status)


def _usable_units(units: list[Unit]) -> dict[int, Unit]:
    return {unit.slot: unit for unit in units if unit.status not in (UnitStatus.LOST, UnitStatus.REJECTED)}


def _drain_paused_job(
    session: Session, settings: Settings, job: Job, slots: list[Slot], units: list[Unit], next_units: list[Unit]
) -> None:
    """Offer no new units. Close the round once it can close, then free the nodes."""
    at_work = any(unit.status in units_repository.OPEN_UNIT for unit in (*units, *next_units))
    if round_state(session, job, units, settings).can_close(utc_now()):
        enqueue_after_commit(session, "jobs.aggregate", job.id)
        at_work = not evaluations.open_evaluations(session, job.id, final=True)
    if not at_work:
        _free_idle_nodes(session, job, slots, units)


def fail_job(session: Session, job: Job, reason: str) -> None:
    """Fail a running job, which the caller has locked, and end its training."""
    transition_job(session, job, JobEvent.FAIL, reason=reason)
    stop_training(session, job, reason)


def _offer_unit(
    session: Session,
    settings: Settings,
    job: Job,
    slot: Slot,
    provider: str,
    checkpoint: Checkpoint,
    round_: int,
    eager_payload_cid: str | None,
) -> Unit:
    start = slot_states.start_of(session, job, round_, slot, provider)
    unit = Unit(
        job_id=job.id,
        round=round_,
        slot=slot.slot,
        provider=provider,
        status=UnitStatus.LEASED,
        start_checkpoint_cid=checkpoint.cid,
        start_slot_state_cid=start.cid,
        start_slot_state_digest=start.digest,
        start_restored_payload_cid=start.restored_payload_cid,
        start_eager_payload_cid=eager_payload_cid,
        top_k=_top_k(session, job, provider),
    )
    session.add(unit)
    session.flush()
    task = {
        "job_id": job.id,
        "spec": unit_spec(job, unit).to_dict(),
        "round": unit.round,
        "slot": unit.slot,
        "checkpoint_cid": unit.start_checkpoint_cid,
        "slot_state_cid": unit.start_slot_state_cid,
        "restored_payload_cid": unit.start_restored_payload_cid,
        "eager_payload_cid": unit.start_eager_payload_cid,
        "environment": job.environment_class,
        "probe": provider not in units_repository.probes(session, job.id),
    }
    create_lease(
        session,
        kind=LeaseKind.TRAIN,
        holder=provider,
        job_id=job.id,
        task=task,
        unit_id=unit.id,
        seconds=settings.lease_seconds,
    )
    return unit


def _top_k(session: Session, job: Job, provider: str) -> int:
    """Return the compression level of a node's next unit, from its last report."""
    # Without such a report, use its newest one of another job, with compute time scaled by the work of a unit.
    spec = TrainingSpec.from_dict(job.spec)
    report, work = units_repository.last_report(session, job.id, provider), 1.0
    since = utc_now() - REPORT_OF_ANOTHER_JOB
    if report is None and (found := units_repository.newest_report(session, provider, since)):
        report, other = found
        work = flops_per_unit(spec) / flops_per_unit(TrainingSpec.from_dict(other))
    if report is None:
        return choose_top_k(spec, None, None)
    return choose_top_k(spec, report.get("up_bytes_per_second"), work * report["compute_ms"] / 1000)
