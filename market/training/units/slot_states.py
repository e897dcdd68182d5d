"""Replica states between the units of a slot. The file stays on the node that made it.

The market knows a state by its CID and its digest in the unit's last leaf, both as the node declared them. A unit
starts from the slot's state if its node made it or storage has it, and from a fresh one otherwise. The file is
requested if a sampled segment needs it (:mod:`market.verification.replays.service`), or in the background if a kept
checkpoint names it (:mod:`market.training.replication.slot_state_uploads`). The market checks the upload.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.platform.events.service import emit
from market.training.units import repository
from market.training.units.facts import UnitSummary
from market.training.units.models import Unit
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import slot_state_bytes
from training_gym.units.trace import boundary_state_bytes
from zoo_protocol.payments.job_record import ROLLED_BACK

MISSING = "slot_state_missing"
"""Failure code of a node that has lost the replica state that its unit starts from."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start of a unit: a replica state and a payload restored to it. All None: a fresh state."""

    cid: str | None = None
    digest: str | None = None
    restored_payload_cid: str | None = None


def start_of(session: Session, job: Job, round_: int, slot: Slot, provider: str) -> Start:
    """Return the start of the slot's unit on this node; emit an event on a reset."""
    if slot.state_unit_id is None:
        return Start()
    [before] = repository.units_by_id(session, [slot.state_unit_id]).values()
    if before.status in (UnitStatus.REJECTED, UnitStatus.LOST):
        reason = f"unit_{before.status}"
    elif before.provider != provider and not before.slot_state_public:
        reason = "held_by_another_node"
    else:
        restored = repository.payload_to_restore(session, job.id, slot.slot)
        return Start(before.slot_state_cid, before.slot_state_digest, restored)
    _emit_state_reset(session, job.id, round_, slot.slot, before, reason)
    return Start()


def continues_on_delivery(job: Job) -> bool:
    """Return True if replicas continue before their unit's round is aggregated."""
    return bool(job.spec["training_config"].get("round_delay"))


def set_next_start_state(session: Session, slot: Slot, unit: Unit) -> None:
    """Let the slot's next unit start from the end state of ``unit``, unless it is rolled back."""
    if is_rolled_back(unit):
        return
    slot.state_unit_id = unit.id
    if unit.start_restored_payload_cid is not None:
        repository.record_restored(session, unit.job_id, unit.slot, unit.start_restored_payload_cid)


def start_afresh(session: Session, job_id: str, slots: Iterable[Slot]) -> None:
    """Start all replicas afresh after a rollback. The caller has locked the job.

    Moments and error feedback belong to the abandoned model, and so does what was begun from it.
    """
    for slot in slots:
        slot.state_unit_id = None
    repository.exclude_begun(session, job_id, ROLLED_BACK)


def is_rolled_back(unit: Unit) -> bool:
    """Return True if the unit was begun before a rollback, which no later unit continues."""
    return unit.exclusion_reason == ROLLED_BACK


def can_be_restored(unit: Unit) -> bool:
    """Return True if the unit's payload can be restored (``robust.RESTORED_FOR``).

    A payload is restored once: otherwise excluded payloads accumulate in a replica with unusual data.
    """
    return unit.start_restored_payload_cid is None


def reset_state(session: Session, unit: Unit) -> None:
    """Start the slot afresh after the unit's node has lost the start state."""
    slot = session.get_one(Slot, (unit.job_id, unit.slot))
    if slot.state_unit_id is None or unit.start_slot_state_cid is None:
        return
    [before] = repository.units_by_id(session, [slot.state_unit_id]).values()
    if before.slot_state_cid == unit.start_slot_state_cid and not before.slot_state_public:
        slot.state_unit_id = None
        _emit_state_reset(session, unit.job_id, unit.round, unit.slot, before, "lost_by_its_node")


def _emit_state_reset(session: Session, job_id: str, round_: int, slot: int, before: Unit, reason: str) -> None:
    data = {"round": round_, "slot": slot, "reason": reason, "slot_state_cid": before.slot_state_cid}
    emit(session, job_id, "slot_fresh", data)


def starts_privately(session: Session, unit_id: int) -> bool:
    """Return True if only its node has the unit's start state. A fresh state is reproducible."""
    [unit] = repository.units_by_id(session, [unit_id]).values()
    if unit.start_slot_state_cid is None or unit.start_slot_state_digest is None:
        return False
    declared = unit.start_slot_state_cid, unit.start_slot_state_digest
    return not repository.is_state_public(session, unit.job_id, *declared)


def reveal_bytes(session: Session, unit: UnitSummary, segments: Sequence[int]) -> int:
    """Return the bytes to upload to reveal the start states of these segments."""
    spec = TrainingSpec.from_dict(unit.spec)
    states = sum(segment > 0 for segment in segments) * boundary_state_bytes(spec)
    return states + (slot_state_bytes(spec) if segments and starts_privately(session, unit.id) else 0)


def next_start_cids(session: Session, job_id: str) -> dict[int, str]:
    """Return by slot the CID of the next start state for a checkpoint's manifest.

    A slot whose state gets a payload restored is missing: no file holds that state.
    """
    changed = repository.slots_to_restore(session, job_id)
    slots = jobs_repository.slots(session, job_id)
    plain = {slot.slot: slot.state_unit_id for slot in slots if slot.slot not in changed}
    units = repository.units_by_id(session, [unit_id for unit_id in plain.values() if unit_id is not None])
    found = {slot: units[unit_id].slot_state_cid for slot, unit_id in plain.items() if unit_id is not None}
    return {slot: cid for slot, cid in found.items() if cid is not None}


def request_kept_states(session: Session, job: Job, round_: int) -> None:
    """Request uploads of current states if the checkpoint before ``round_`` is kept, not last."""
    if round_ % job.checkpoint_interval or round_ == job.rounds:
        return
    ids = [slot.state_unit_id for slot in jobs_repository.slots(session, job.id) if slot.state_unit_id is not None]
    for unit in repository.units_by_id(session, ids).values():
        unit.slot_state_round = round_
