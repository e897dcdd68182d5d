"""Close of a round: aggregate delivered payloads to a checkpoint and advance the job.

Idempotent: the files depend only on the payloads, and the change applies only while the job is in the loaded round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from market.domain.lifecycle import JobEvent, JobStatus, LeaseEvent, UnitStatus
from market.domain.verification.sampling import DIVERGED
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.events.service import emit
from market.platform.storage.client import Storage
from market.settings import Settings
from market.training.aggregation import repository as aggregation_repository
from market.training.aggregation import tree
from market.training.aggregation.final_model import evaluated_final_model, evaluated_units, release_model, repeated_loss
from market.training.aggregation.lost_inputs import fails_overdue_job
from market.training.aggregation.memory import has_memory
from market.training.aggregation.models import AggregationLeaf
from market.training.aggregation.payloads import (
    AggregationInput,
    PayloadsLost,
    aggregation_input,
    payloads_of,
    store_record,
)
from market.training.aggregation.rollback import (
    best_round,
    have_diverged,
    known_losses,
    lacks_quorum,
    needed_rollback,
)
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import (
    StoredCheckpoint,
    load_outer,
    load_parameters,
    loss_in,
    record_checkpoint,
    rollbacks,
    store_checkpoint,
)
from market.training.evaluation.service import corrects_first_loss, take_unit_losses
from market.training.leases import evaluations
from market.training.leases import repository as leases_repository
from market.training.leases.service import abandon, stop_training
from market.training.rounds.service import fail_job
from market.training.rounds.state import round_state
from market.training.units import repository as units_repository
from market.training.units import slot_states
from market.training.units.models import Unit
from training_gym.aggregate.aggregation import Aggregate, finish_aggregation
from training_gym.aggregate.aggregation import aggregate as aggregate_payloads
from training_gym.aggregate.outer_step import outer_state_pieces
from training_gym.aggregate.robust import RESTORED_FOR, Verdict
from training_gym.exchange.deadlines import MAX_STALENESS
from training_gym.model.layout import Arrays
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import PayloadError
from zoo_protocol.payments.job_record import MAX_ROLLBACKS, PAYLOAD_LOST, ROLLED_BACK
from zoo_protocol.verification.training_faults import FINAL_LOSS, STEP_NOT_FINITE, KnownLoss, Rollback


@dataclass(frozen=True, slots=True)
class _Round:
    """A round that can be closed.

    ``parts`` are its inputs; ``leaves`` those of its tree, all done, or none without a tree.
    The replica states are by slot without, and by place with the aggregated unit. ``restorable`` are ids of units whose
    payloads are restored if they are excluded as outliers. A ``rollback`` replaces the aggregation. ``losses`` are by
    the round of their checkpoint.
    """

    number: int
    is_last: bool
    spec: TrainingSpec
    checkpoint_cid: str
    parts: list[AggregationInput]
    leaves: Sequence[AggregationLeaf]
    slot_states: dict[int, str]
    next_slot_states: dict[int, str]
    restorable: frozenset[int]
    losses: Mapping[int, KnownLoss] = field(default_factory=dict)
    rollback: Rollback | None = None


def aggregate(database: Database, settings: Settings, storage: Storage, job_id: str) -> None:
    """Close the job's round if due and not being closed elsewhere.

    Raises:
        StorageError, GymError, OSError: a later call tries again; the first two until the round is overdue.
    """
    with database.advisory_lock(f"aggregate:{job_id}") as alone, fails_overdue_job(database, settings, storage, job_id):
        if alone:
            tree.drop_stale_leaves(database, storage, job_id)
        round_ = _load(database, settings, job_id) if alone else None
        if round_ is None or not has_memory(settings, round_.spec, len(round_.parts), job_id):
            return
        try:
            made = _make_checkpoint(database, settings, storage, job_id, round_)
        except tree.SumLost as lost:
            with database.transaction() as session:
                tree.recompute_sum(session, job_id, round_.number, lost.cid)
            return
        except PayloadsLost as lost:
            tree.exclude_lost_payloads(database, job_id, lost)
            return
        if made is None:
            return
        with database.transaction() as session:
            _apply(session, job_id, *made)
        tree.drop_stale_leaves(database, storage, job_id)


def _make_checkpoint(
    database: Database, settings: Settings, storage: Storage, job_id: str, round_: _Round
) -> tuple[_Round, StoredCheckpoint, dict[int, Verdict]] | None:
    """Return the round with its rollback, checkpoint and verdicts; None: a later call goes on."""
    rollback, loss = round_.rollback, None
    if rollback is None:
        try:
            stored, verdicts = _build_checkpoint(storage, job_id, round_)
        except PayloadError:
            rollback = Rollback(best_round(round_.losses), STEP_NOT_FINITE)
        else:
            if round_.is_last:
                final = evaluated_final_model(database, settings, storage, job_id, round_.spec, stored, round_.losses)
                if final is None:
                    return None
                loss, rollback = final
            if rollback is None:
                return round_, replace(stored, loss=loss or stored.loss), verdicts
            release_model(database, storage, job_id, stored)
    if corrects_first_loss(database, settings, storage, job_id, round_.spec):
        return None
    round_ = replace(round_, rollback=rollback)
    if rollback.reason != FINAL_LOSS and not _may_roll_back(database, job_id, round_):
        return None
    stored, verdicts = _repeat_checkpoint(database, storage, job_id, round_, rollback)
    if loss is None and round_.is_last:  # a final model's loss is of more samples
        loss = repeated_loss(database, settings, storage, job_id, round_.spec, stored, round_.losses)
    return round_, replace(stored, loss=loss or stored.loss), verdicts


def _may_roll_back(database: Database, job_id: str, round_: _Round) -> bool:
    """Return True if a rollback is left; otherwise the job fails, unless it has recovered."""
    with database.transaction() as session:
        job = jobs_repository.lock_job(session, job_id)
        if job is None or job.status != JobStatus.RUNNING:
            return False
        if len(rollbacks(session, job_id)) < MAX_ROLLBACKS:
            return True
        if _has_recovered(session, job, round_):
            enqueue_after_commit(session, "jobs.dispatch", job_id)
        else:
            fail_job(session, job, DIVERGED)
        return False


def _repeat_checkpoint(
    database: Database, storage: Storage, job_id: str, round_: _Round, rollback: Rollback
) -> tuple[StoredCheckpoint, dict[int, Verdict]]:
    """Store the earlier checkpoint as the next one; no payload of the round is aggregated."""
    with database.transaction() as session:
        best = checkpoints_repository.checkpoint(session, job_id, rollback.to)
        assert best is not None  # it has a loss, or is the first
        cid, loss = best.cid, loss_in(best)
    verdict = Verdict(False, ROLLED_BACK, f"the round was rolled back to checkpoint {rollback.to} ({rollback.reason})")
    verdicts = {part.place: verdict for part in round_.parts}
    stored = store_checkpoint(
        storage,
        round_.spec,
        job_id=job_id,
        round_=round_.number + 1,
        parent=round_.checkpoint_cid,
        parameters=load_parameters(storage, round_.spec, cid),
        outer_state=outer_state_pieces(round_.spec, load_outer(storage, round_.spec, cid)),
        aggregation=store_record(
            storage, job_id, round_.number, round_.checkpoint_cid, round_.parts, verdicts, rollback
        ),
        slot_states={},
    )
    return replace(stored, loss=loss), verdicts


def _load(database: Database, settings: Settings, job_id: str) -> _Round | None:
    """Return the round if it can be closed; otherwise plan its tree or enqueue open leaves."""
    with database.transaction() as session:
        job = jobs_repository.lock_job(session, job_id)
        if job is None or job.status != JobStatus.RUNNING:
            return None
        number, spec = job.current_round, TrainingSpec.from_dict(job.spec)
        checkpoint = checkpoints_repository.checkpoint(session, job_id, number)
        units = units_repository.units_and_late(session, job_id, number)
        is_last = number + 1 == job.rounds
        if checkpoint is None or (is_last and evaluations.is_awaited(session, settings, job)):
            return None
        own = [unit for unit in units.values() if unit.round == number]
        state = round_state(session, job, own, settings)
        if state.can_close(utc_now()):
            take_unit_losses(session, job, spec)
        checkpoints = checkpoints_repository.checkpoints(session, job_id)
        rollback, losses = needed_rollback(checkpoints, own, job.nodes), known_losses(checkpoints)
        if rollback is not None and (state.can_close(utc_now()) or rollback.reason == DIVERGED):
            return _rolled_back(job, spec, checkpoint, units, rollback)
        leaves = aggregation_repository.leaves_of_round(session, job_id, number)
        if not tree.is_usable(leaves, units):  # the next sweep drops these leaves
            return None
        if not leaves:
            if not state.can_close(utc_now()):
                return None
            usable = evaluated_units(session, job, _undisputed(units.values()))
            parts = [aggregation_input(job, unit) for unit in usable]
            if lacks_quorum(checkpoints, own, job.nodes, len(parts)):
                parts = []  # they join the next round late
            shares = tree.shape(session, settings, spec, parts, {unit.id: unit.provider for unit in units.values()})
            if len(shares) > 1:
                tree.plan(session, job_id, number, shares)
                return None
        elif waiting := [leaf.leaf for leaf in leaves if leaf.sum_cid is None]:
            tree.enqueue_leaf_tasks(session, job_id, number, waiting)  # their tasks may have been lost
            return None
        else:
            parts = [part for leaf in leaves for part in tree.inputs_of(leaf)]
        return _Round(
            number=number,
            is_last=is_last,
            spec=spec,
            checkpoint_cid=checkpoint.cid,
            parts=parts,
            leaves=leaves,
            slot_states=slot_states.next_start_cids(session, job_id),
            next_slot_states={
                part.place: units[part.unit_id].slot_state_cid or "" for part in parts if part.round == number
            },
            restorable=frozenset(part.unit_id for part in parts if slot_states.can_be_restored(units[part.unit_id])),
            losses=losses,
        )


def _rolled_back(
    job: Job, spec: TrainingSpec, checkpoint: Checkpoint, units: Mapping[int, Unit], rollback: Rollback
) -> _Round:
    return _Round(
        number=job.current_round,
        is_last=job.current_round + 1 == job.rounds,
        spec=spec,
        checkpoint_cid=checkpoint.cid,
        parts=[aggregation_input(job, unit) for unit in units.values() if tree.can_be_aggregated(unit)],
        leaves=(),
        slot_states={},
        next_slot_states={},
        restorable=frozenset(),
        rollback=rollback,
    )


def _undisputed(units: Iterable[Unit]) -> list[Unit]:
    delivered = [unit for unit in units if tree.can_be_aggregated(unit)]
    return [unit for unit in delivered if unit.status != UnitStatus.DISPUTED] or delivered


def _build_checkpoint(storage: Storage, job_id: str, round_: _Round) -> tuple[StoredCheckpoint, dict[int, Verdict]]:
    """Store and return the next checkpoint and the verdict on each place."""
    # It names no replica state for a restored payload: no such file exists.
    parameters = load_parameters(storage, round_.spec, round_.checkpoint_cid)
    aggregated = _aggregate(storage, round_, parameters)
    restored = _to_restore(round_, aggregated.verdicts)
    changed = {part.slot for part in round_.parts if part.unit_id in restored}
    states = round_.slot_states | {
        part.slot: round_.next_slot_states[part.place] for part in round_.parts if part.place in round_.next_slot_states
    }
    stored = store_checkpoint(
        storage,
        round_.spec,
        job_id=job_id,
        round_=round_.number + 1,
        parent=round_.checkpoint_cid,
        parameters=aggregated.parameters,
        outer_state=outer_state_pieces(round_.spec, aggregated.outer_state),
        update=aggregated.update,
        aggregation=store_record(
            storage, job_id, round_.number, round_.checkpoint_cid, round_.parts, aggregated.verdicts
        ),
        slot_states={} if round_.is_last else {slot: cid for slot, cid in states.items() if slot not in changed},
    )
    return stored, aggregated.verdicts


def _to_restore(round_: _Round, verdicts: Mapping[int, Verdict]) -> set[int]:
    return {
        part.unit_id
        for part in round_.parts
        if part.unit_id in round_.restorable and verdicts[part.place].code in RESTORED_FOR
    }


def _aggregate(storage: Storage, round_: _Round, parameters: Arrays) -> Aggregate:
    """Return the outer step, from the tree's sums or from the payloads. Both give the same bits."""
    spec, checkpoint = round_.spec, round_.checkpoint_cid
    if round_.leaves:
        return finish_aggregation(
            spec,
            parameters,
            tree.verdicts_of(round_.leaves),
            tree.combine(storage, spec, round_.leaves),  # a variable would keep it in memory
            load_outer(storage, spec, checkpoint),
            in_place=True,
        )
    state = load_outer(storage, spec, checkpoint)
    payloads = payloads_of(storage, spec, round_.parts)
    weights = {part.place: part.weight for part in round_.parts}
    return aggregate_payloads(spec, parameters, payloads, weights, state, in_place=True)


def _apply(
    session: Session, job_id: str, round_: _Round, stored: StoredCheckpoint, verdicts: dict[int, Verdict]
) -> None:
    job = jobs_repository.lock_job(session, job_id)
    if job is None or job.status != JobStatus.RUNNING or job.current_round != round_.number:
        return
    units = units_repository.units_and_late(session, job_id, round_.number)
    if not tree.all_delivered(round_.parts, units) or _has_recovered(session, job, round_):
        enqueue_after_commit(session, "jobs.dispatch", job_id)  # a unit was rejected or committed since
        return
    slots = {slot.slot: slot for slot in jobs_repository.slots(session, job_id)}
    aggregated = {part.unit_id: verdicts[part.place] for part in round_.parts}
    restored = _to_restore(round_, verdicts)
    for unit in units.values():
        if unit.id in aggregated:
            unit.included = aggregated[unit.id].included
            unit.exclusion_reason = None if unit.included else aggregated[unit.id].code
            is_continued = unit.round < round_.number or slot_states.continues_on_delivery(job)
            if not is_continued:  # excluded units too: a reset optimiser would lag behind the other replicas
                slot_states.set_next_start_state(session, slots[unit.slot], unit)
            unit.to_restore = unit.id in restored
        elif unit.exclusion_reason == PAYLOAD_LOST:
            if not slot_states.continues_on_delivery(job):
                slot_states.set_next_start_state(session, slots[unit.slot], unit)
        elif tree.can_be_aggregated(unit):
            _defer_payload(session, job, unit, slots[unit.slot])
        elif unit.status == UnitStatus.LEASED:
            reason = units_repository.ROUND_CLOSED if round_.rollback is None else ROLLED_BACK  # its node is not slow
            for locked in leases_repository.lock_open_leases(session, job_id, unit_id=unit.id):
                abandon(session, *locked, LeaseEvent.EXPIRE, reason)
    if round_.rollback is not None:
        _reset_replicas(session, job_id, round_.number, round_.rollback, slots.values())
    slot_states.request_kept_states(session, job, round_.number + 1)
    record_checkpoint(session, stored, round_.rollback)
    late = sum(verdicts[part.place].included for part in round_.parts if part.round < round_.number)
    _advance(session, job, stored, included=sum(verdict.included for verdict in verdicts.values()), late=late)


def _has_recovered(session: Session, job: Job, round_: _Round) -> bool:
    """Return True if units committed since then refute that the round diverged."""
    if round_.rollback is None or round_.rollback.reason != DIVERGED:
        return False
    own = units_repository.units_of_round(session, job.id, round_.number)
    return not have_diverged(checkpoints_repository.checkpoints(session, job.id), own, job.nodes)


def _reset_replicas(session: Session, job_id: str, number: int, rollback: Rollback, slots: Iterable[Slot]) -> None:
    slot_states.start_afresh(session, job_id, slots)
    emit(session, job_id, "rollback", {"round": number + 1, "to": rollback.to, "reason": rollback.reason})


def _defer_payload(session: Session, job: Job, unit: Unit, slot: Slot) -> None:
    """Leave a payload that arrived during the aggregation to the next round, if there is one."""
    if job.current_round + 1 == job.rounds:
        unit.included, unit.exclusion_reason = False, "late"
        return
    if unit.round == job.current_round and not slot_states.continues_on_delivery(job):
        slot_states.set_next_start_state(session, slot, unit)
    unit.rounds_late = min((unit.rounds_late or 0) + 1, MAX_STALENESS)


def _advance(session: Session, job: Job, stored: StoredCheckpoint, included: int, late: int) -> None:
    job.current_round += 1
    now = utc_now()
    data: dict[str, object] = {"round": job.current_round, "rounds": job.rounds}
    data |= {**stored.loss._asdict(), "included": included, "late": late}
    emit(session, job.id, "round", data)
    if job.current_round < job.rounds:
        job.round_started_at = now
        enqueue_after_commit(session, "jobs.validate", job.id)
    else:
        job.trained_at = now
        transition_job(session, job, JobEvent.ROUNDS_DONE)
        stop_training(session, job, "training_over", keep_committed=True)
    enqueue_after_commit(session, "jobs.dispatch", job.id)
