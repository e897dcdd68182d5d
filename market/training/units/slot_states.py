"""Replica states: what a slot's units hand on to one another. The file stays on the node that made it.

The market knows a state by its CID and by the digest that the last leaf of its unit binds, both as the node declared
them. It says what each unit starts from: the slot's state where the node made it or storage has it, else a fresh one.
The file is asked for when a drawn segment needs it (:mod:`market.verification.replays.service`), and in the
background when a
checkpoint that is kept names it (:mod:`market.training.replication.slot_state_uploads`); what arrives is compared
with what was declared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job, Slot
from market.platform.events.service import emit
from market.training.units import repository, slot_state_repository
from market.training.units.facts import UnitSummary
from market.training.units.models import Unit
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import slot_state_bytes
from training_gym.units.trace import boundary_state_bytes

MISSING = "slot_state_missing"
"""A node fails its unit so if it has lost the replica state that the unit starts from."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a unit starts from: a replica state, with a payload added back that was not used. All None: a fresh one."""

    cid: str | None = None
    digest: str | None = None
    restored_payload_cid: str | None = None


def start_of(session: Session, job: Job, round_: int, slot: Slot, provider: str) -> Start:
    """What the slot's unit of a round starts from on this node. That a state is given up is told as an event."""
    if slot.state_unit_id is None:
        return Start()
    [before] = repository.units_by_id(session, [slot.state_unit_id]).values()
    if before.status in (UnitStatus.REJECTED, UnitStatus.LOST):
        reason = f"unit_{before.status}"
    elif before.provider != provider and not before.slot_state_public:
        reason = "held_by_another_node"
    else:
        restored = slot_state_repository.payload_to_restore(session, job.id, slot.slot)
        return Start(before.slot_state_cid, before.slot_state_digest, restored)
    _emit_state_reset(session, job.id, round_, slot.slot, before, reason)
    return Start()


def continues_on_delivery(job: Job) -> bool:
    """Whether a slot goes on from what a unit leaves once that is declared or delivered, not only once its round is
    joined."""
    return bool(job.spec["training_config"].get("round_delay"))


def set_next_start_state(session: Session, slot: Slot, unit: Unit) -> None:
    """The slot's next unit starts from what ``unit`` hands on, which has what was added back to its own start."""
    slot.state_unit_id = unit.id
    if unit.start_restored_payload_cid is not None:
        slot_state_repository.note_restored(session, unit.job_id, unit.slot, unit.start_restored_payload_cid)


def may_be_restored(unit: Unit) -> bool:
    """Whether what ``unit`` sent is added back if the round at hand leaves it out (``robust.RESTORED_FOR``).

    Once only: what was added back already and is left out again would pile up in a slot whose data are unlike all
    others'.
    """
    return unit.start_restored_payload_cid is None


def reset_state(session: Session, unit: Unit) -> None:
    """The node that held what ``unit`` was to start from has lost it, so the slot starts afresh."""
    [slot] = [slot for slot in jobs_repository.slots(session, unit.job_id) if slot.slot == unit.slot]
    if slot.state_unit_id is None or unit.start_slot_state_cid is None:
        return
    [before] = repository.units_by_id(session, [slot.state_unit_id]).values()
    if before.slot_state_cid == unit.start_slot_state_cid and not before.slot_state_public:
        slot.state_unit_id = None
        _emit_state_reset(session, unit.job_id, unit.round, unit.slot, before, "lost_by_its_node")


def _emit_state_reset(session: Session, job_id: str, round_: int, slot: int, before: Unit, reason: str) -> None:
    emit(
        session,
        job_id,
        "slot_fresh",
        {"round": round_, "slot": slot, "reason": reason, "slot_state_cid": before.slot_state_cid},
    )


def starts_privately(session: Session, unit_id: int) -> bool:
    """Whether only its node has what a unit starts from. A fresh state anybody can make."""
    [unit] = repository.units_by_id(session, [unit_id]).values()
    if unit.start_slot_state_cid is None or unit.start_slot_state_digest is None:
        return False
    declared = unit.start_slot_state_cid, unit.start_slot_state_digest
    return not slot_state_repository.is_public(session, unit.job_id, *declared)


def shown_bytes(session: Session, unit: UnitSummary, segments: Sequence[int]) -> int:
    """Bytes that a unit's provider has to upload to show what these segments start from."""
    spec = TrainingSpec.from_dict(unit.spec)
    states = sum(segment > 0 for segment in segments) * boundary_state_bytes(spec)
    return states + (slot_state_bytes(spec) if segments and starts_privately(session, unit.id) else 0)


def make_public(session: Session, job_id: str, cid: str, digest: str | None) -> None:
    """Storage has the file with this CID, and it holds the state with this digest, as was declared."""
    slot_state_repository.make_public(session, job_id, cid, digest)


def named(session: Session, job_id: str) -> dict[int, str]:
    """By slot, the CID of what its next unit starts from, as the manifest of a checkpoint names it now.

    A slot that goes on from a state with a payload added back is not named: no file is of that.
    """
    changed = slot_state_repository.slots_to_restore(session, job_id)
    slots = jobs_repository.slots(session, job_id)
    plain = {slot.slot: slot.state_unit_id for slot in slots if slot.slot not in changed}
    units = repository.units_by_id(session, [unit_id for unit_id in plain.values() if unit_id is not None])
    found = {slot: units[unit_id].slot_state_cid for slot, unit_id in plain.items() if unit_id is not None}
    return {slot: cid for slot, cid in found.items() if cid is not None}


def mark_kept(session: Session, job: Job, round_: int) -> None:
    """If the checkpoint before ``round_`` is kept, and is not the last, the slots' states now are to be uploaded."""
    if round_ % job.checkpoint_interval or round_ == job.rounds:
        return
    ids = [slot.state_unit_id for slot in jobs_repository.slots(session, job.id) if slot.state_unit_id is not None]
    for unit in repository.units_by_id(session, ids).values():
        unit.slot_state_round = round_
