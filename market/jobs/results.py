"""What nodes deliver on their leases: commitments first, then results that are checked against them.

Every call may be repeated: the same commitment or the same completion again answers as the first time. What is
fetched from storage is fetched with no session open; the outcome is applied only if the lease is still held then.
"""

import hmac
from dataclasses import dataclass
from typing import Any

import numpy as np
from eth_utils.address import to_checksum_address
from sqlalchemy.orm import Session

from market.api.errors import InvalidSignature, StorageDown
from market.db.base import utc_now
from market.db.session import Database, wake_after_commit
from market.domain.lifecycle import LeaseEvent, LeaseStatus, UnitEvent, UnitStatus
from market.jobs import publishing, repository, slot_states
from market.jobs.acknowledgements import Acknowledger, acknowledge, view
from market.jobs.checkpoints import load_parameters, slot_state_bytes
from market.jobs.errors import CommitmentChanged, ResultRefused, WrongStep
from market.jobs.lease_schemas import (
    AcknowledgementView,
    CommitReplay,
    CommitTraining,
    CompletePin,
    CompletePublish,
    CompleteReplay,
    CompleteReveal,
    CompleteTraining,
    LeaseKind,
)
from market.jobs.leases import abandon, lock_held, mark_first_step, require_held
from market.jobs.models import Job, Lease, Unit
from market.jobs.moves import move_lease, move_unit
from market.jobs.pins import pin_proof, record_pin
from market.jobs.replaying import verification
from market.jobs.units import unit_spec
from market.storage.errors import StorageError, StorageUnavailable
from market.storage.service import Storage
from training_gym.compression.wire import decode, payload_size
from training_gym.config import TrainingSpec
from training_gym.distributed import trace as trace_of_unit
from training_gym.distributed.trace import Ends, check_ends, inner_leaf, load_boundary_state
from training_gym.errors import GymError, PayloadError
from training_gym.lateness import MAX_STALENESS, start_slot_state
from training_gym.models.layout import Arrays
from training_gym.slot_state import error_feedback_digest, fresh_slot_state, load_slot_state
from zoo_protocol import trace
from zoo_protocol.cid import InvalidCid
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, recover, typed_data

Completion = CompleteTraining | CompleteReveal | CompleteReplay | CompletePin | CompletePublish


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A result that passed its checks: how many bytes it is of, uploaded or proved to be held."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a result is refused: a stable ``reason``, the field at fault and a sentence."""

    reason: str
    field: str
    detail: str


def commit(
    session: Session,
    domain: Domain,
    acknowledger: Acknowledger,
    lease_id: str,
    address: str,
    commitment: CommitTraining | CommitReplay,
) -> AcknowledgementView | None:
    """Take a node's commitment to its result, before anything is revealed to it; a unit's is acknowledged.

    Raises:
        LeaseLost; WrongStep: the lease takes no such commitment; InvalidSignature: it is not the holder's;
        CommitmentChanged: another result was committed before; CommitmentRepeated: it is that of an earlier unit.
    """
    job, unit, lease = lock_held(session, lease_id, address, commitment.token)
    if isinstance(commitment, CommitReplay):
        _require_kind(lease, LeaseKind.REPLAY)
        verification().replay_committed(session, lease, commitment.result_hash)
        return None
    _require_kind(lease, LeaseKind.TRAIN)
    assert unit is not None  # every train lease has one
    message = UnitCommitment(
        jobId=job.id,
        round=unit.round,
        slot=unit.slot,
        provider=address,
        traceRoot=commitment.trace_root,
        payloadHash=commitment.payload_hash,
    )
    _require_signed(domain, message, commitment.commitment_signature)
    if unit.status == UnitStatus.LEASED:
        unit.trace_root = commitment.trace_root
        unit.payload_hash = commitment.payload_hash
        unit.commitment_signature = commitment.commitment_signature
        unit.committed_at = utc_now()
        move_unit(session, unit, UnitEvent.COMMIT, at=unit.committed_at)
        mark_first_step(session, job.id, unit.committed_at)
    elif (unit.trace_root, unit.payload_hash) != (commitment.trace_root, commitment.payload_hash):
        raise CommitmentChanged(f"This unit's trace root was committed as {unit.trace_root}.", field="trace_root")
    return view(acknowledge(session, acknowledger, unit, message, utc_now()))


def complete(
    database: Database, storage: Storage, lease_id: str, address: str, result: Completion, max_blob_bytes: int
) -> None:
    """Take a node's result. If it is not what was asked or committed, the lease ends and the work goes to others.

    Raises:
        LeaseLost; WrongStep; ResultRefused: the result is not accepted; StorageDown: nothing was changed.
    """
    with database.transaction() as session:
        lease = repository.lease(session, lease_id)
        if _is_done(lease, address, result.token):
            return
        lease = require_held(lease, address, result.token, utc_now())
        found = None if lease.unit_id is None else repository.unit(session, lease.unit_id)
    checked = _check(storage, lease, found, result, max_blob_bytes)
    with database.transaction() as session:
        locked = repository.lock_lease(session, lease_id)
        assert locked is not None  # leases are never deleted
        job, unit, lease = locked
        if _is_done(lease, address, result.token):
            return  # the same result came twice at once
        require_held(lease, address, result.token, utc_now())
        if isinstance(checked, _Accepted):
            _accept(session, job, unit, lease, result, checked)
        elif lease.kind != LeaseKind.REVEAL:  # who was told to reveal may try until the deadline
            abandon(session, job, unit, lease, LeaseEvent.FAIL, checked.reason, checked.detail)
    if isinstance(checked, _Refusal):
        raise ResultRefused(checked.detail, field=checked.field, extra={"reason": checked.reason})


def _is_done(lease: Lease | None, address: str, token: str) -> bool:
    return (
        lease is not None
        and lease.status == LeaseStatus.DONE
        and lease.holder == address
        and hmac.compare_digest(lease.token, token)
    )


def _check(
    storage: Storage, lease: Lease, found: tuple[Job, Unit] | None, result: Completion, max_blob_bytes: int
) -> _Refusal | _Accepted:
    """What is wrong with a result, or what was found of it. Raises WrongStep, StorageDown."""
    try:
        match result:
            case CompleteTraining():
                _require_kind(lease, LeaseKind.TRAIN)
                assert found is not None  # every train lease has a unit
                return _check_training(storage, *found, result)
            case CompleteReveal():
                _require_kind(lease, LeaseKind.REVEAL)
                assert found is not None  # every reveal lease has a unit
                return _check_reveal(storage, *found, lease.task, result, max_blob_bytes) or _Accepted()
            case CompleteReplay():
                _require_kind(lease, LeaseKind.REPLAY)
                return _Accepted()  # verification judges it in the transaction that applies it
            case CompletePin():
                _require_kind(lease, LeaseKind.PIN)
                expected, size = pin_proof(storage, lease.task["nonce"], lease.task["cids"])
                if not hmac.compare_digest(expected, result.proof):
                    return _Refusal("wrong_pin_proof", "proof", "The proof does not cover the checkpoint's bytes.")
                return _Accepted(size)
            case CompletePublish():
                _require_kind(lease, LeaseKind.PUBLISH)
                assert found is not None  # every publish lease has a unit
                asked, digest = lease.task["slot_state_cid"], found[1].slot_state_digest
                refusal = _check_slot_state(storage, *found, "published_cid", result.published_cid, asked, digest)
                return refusal or _Accepted()
    except StorageUnavailable as error:
        raise StorageDown(str(error)) from error


def _check_training(storage: Storage, job: Job, unit: Unit, result: CompleteTraining) -> _Refusal | _Accepted:
    if unit.status != UnitStatus.COMMITTED:
        raise WrongStep("The unit has no commitment.", remedy="Commit the trace root and payload hash first.")
    spec = unit_spec(job, unit)
    if len(result.leaves) != job.segments + 1:
        detail = f"There are {len(result.leaves)} leaves; {job.segments} segments have {job.segments + 1}."
        return _Refusal("wrong_leaves", "leaves", detail)
    if to_hex(trace.trace_root([from_hex(leaf) for leaf in result.leaves])) != unit.trace_root:
        return _Refusal("wrong_leaves", "leaves", "The leaves do not lead to the committed trace root.")
    try:
        payload = storage.get(result.payload_cid, max_bytes=payload_size(spec))
    except StorageUnavailable:
        raise
    except (StorageError, InvalidCid) as error:
        return _Refusal("payload_missing", "payload_cid", f"The payload cannot be read: {error}")
    if to_hex(sha256(payload)) != result.payload_sha256:
        return _Refusal("payload_mismatch", "payload_sha256", "The payload has another SHA2-256.")
    committed = trace.payload_hash(sha256(payload), unit.provider, from_hex(result.salt))
    if to_hex(committed) != unit.payload_hash:
        return _Refusal("payload_mismatch", "salt", "Payload and salt do not hash to the committed payload hash.")
    try:
        decode(spec, payload)
    except PayloadError as error:
        return _Refusal("payload_malformed", "payload_cid", f"The payload does not decode: {error}")
    refusal = _check_ends(storage, spec, job, unit, result, payload)
    return refusal or _Accepted(len(payload))


def _check_ends(
    storage: Storage, spec: TrainingSpec, job: Job, unit: Unit, result: CompleteTraining, payload: bytes
) -> _Refusal | None:
    """Tie the leaves to the unit's input and to what was handed in; replays vouch only for what lies between.

    Of a start with a payload added back no digest is known: its first leaf is left to who replays the first segment.
    """
    ends = Ends(
        start=None if unit.start_restored_payload_cid is not None else _start_digest(spec, unit),
        parameters=from_hex(result.end_parameters_digest),
        slot_state=from_hex(result.slot_state_digest),
        payload=payload,
    )
    leaves = [from_hex(leaf) for leaf in result.leaves]
    try:
        check_ends(_place(job, unit), spec, _checkpoint(storage, spec, unit), leaves, ends)
    except GymError as error:
        return _Refusal(error.code, error.field, str(error))
    return None


def _start_digest(spec: TrainingSpec, unit: Unit) -> bytes:
    if unit.start_slot_state_digest is None:
        return fresh_slot_state(spec).digest()
    return from_hex(unit.start_slot_state_digest)


def _check_reveal(
    storage: Storage, job: Job, unit: Unit, task: dict[str, Any], result: CompleteReveal, max_blob_bytes: int
) -> _Refusal | None:
    """Whether what was revealed is what the unit started from, and what its trace committed to at the segment."""
    asked = task["slot_state_cid"]
    if asked is not None:
        digest = unit.start_slot_state_digest
        refusal = _check_slot_state(storage, job, unit, "slot_state_cid", result.slot_state_cid, asked, digest)
        if refusal is not None:
            return refusal
    if task["segment"] == 0:
        return None  # starts from the checkpoint and the slot state
    return _check_state(storage, job, unit, task["segment"], result, max_blob_bytes)


def _check_slot_state(
    storage: Storage, job: Job, unit: Unit, field: str, given: str | None, asked: str, digest: str | None
) -> _Refusal | None:
    """Whether storage has the slot state that was asked for, and its file holds what was declared with its CID."""
    if given != asked:
        return _Refusal("wrong_slot_state", field, f"The slot state that was declared, and is asked for, is {asked}.")
    spec = unit_spec(job, unit)
    try:
        found = load_slot_state(spec, storage.get(asked, max_bytes=slot_state_bytes(spec))).digest()
    except StorageUnavailable:
        raise
    except (StorageError, InvalidCid) as error:
        return _Refusal("slot_state_missing", field, f"The slot state cannot be read: {error}")
    except GymError as error:
        return _Refusal("wrong_slot_state", field, str(error))
    if digest is None or found != from_hex(digest):
        return _Refusal("wrong_slot_state", field, f"The file does not hold the state that was declared as {digest}.")
    return None


def _check_state(
    storage: Storage, job: Job, unit: Unit, segment: int, result: CompleteReveal, max_blob_bytes: int
) -> _Refusal | None:
    """Whether a revealed state is the one that the unit's trace committed to at the segment's start."""
    spec = unit_spec(job, unit)
    if result.state_cid is None:
        return _Refusal("state_missing", "state_cid", f"Segment {segment} starts from a state that must be revealed.")
    try:
        data = storage.get(result.state_cid, max_bytes=max_blob_bytes)
    except StorageUnavailable:
        raise
    except (StorageError, InvalidCid) as error:
        return _Refusal("state_missing", "state_cid", f"The state cannot be read: {error}")
    work = _unit_of(storage, spec, job, unit)
    feedback = error_feedback_digest(work.slot_state.error_feedback)
    try:
        leaf = inner_leaf(work, segment, load_boundary_state(spec, data), feedback)
    except GymError as error:
        return _Refusal(error.code, "state_cid", str(error))
    if unit.leaves is None or to_hex(leaf) != unit.leaves[segment]:
        return _Refusal("wrong_state", "state_cid", f"The state does not hash to leaf {segment} of the unit's trace.")
    return None


def _unit_of(storage: Storage, spec: TrainingSpec, job: Job, unit: Unit) -> trace_of_unit.Unit:
    """The unit's input as the training library takes it, without the data, which only training needs.

    What it starts from is public by now.
    """
    cid, payload_cid = unit.start_slot_state_cid, unit.start_restored_payload_cid
    try:
        data = None if cid is None else storage.get(cid, max_bytes=slot_state_bytes(spec))
        payload = None if payload_cid is None else storage.get(payload_cid, max_bytes=payload_size(spec))
    except StorageError as error:
        raise StorageUnavailable(f"the unit's own input cannot be read: {error}") from error
    return trace_of_unit.Unit(
        spec=spec,
        job_id=job.id,
        round=unit.round,
        slot=unit.slot,
        checkpoint=_checkpoint(storage, spec, unit),
        train=np.zeros(0, np.uint8),
        slot_state=start_slot_state(spec, data, payload),
        environment=job.environment_class or "",
    )


def _checkpoint(storage: Storage, spec: TrainingSpec, unit: Unit) -> Arrays:
    try:
        return load_parameters(storage, spec, unit.start_checkpoint_cid)
    except StorageError as error:
        raise StorageUnavailable(f"the unit's own input cannot be read: {error}") from error


def _place(job: Job, unit: Unit) -> trace_of_unit.Place:
    return trace_of_unit.Place(job.id, unit.round, unit.slot, job.environment_class or "")


def _accept(session: Session, job: Job, unit: Unit | None, lease: Lease, result: Completion, found: _Accepted) -> None:
    """Apply a result that passed its checks; the caller has locked everything."""
    now = utc_now()
    match result:
        case CompleteTraining():
            assert unit is not None
            unit.payload_cid = result.payload_cid
            unit.payload_sha256 = result.payload_sha256
            unit.salt = result.salt
            unit.slot_state_cid, unit.slot_state_digest = result.slot_state_cid, result.slot_state_digest
            unit.leaves = list(result.leaves)
            unit.uploaded_bytes = found.size
            unit.train_loss = result.train_loss
            unit.report = None if result.report is None else result.report.model_dump()
            unit.uploaded_at = now
            lease.step = result.steps
            _place_in_time(session, job, unit)
            move_unit(session, unit, UnitEvent.UPLOAD, at=now)
            wake_after_commit(session, "jobs.dispatch", job.id)
            wake_after_commit(session, "verification.advance")
        case CompleteReveal():
            if (cid := lease.task["slot_state_cid"]) is not None:
                assert unit is not None
                slot_states.make_public(session, job.id, cid, unit.start_slot_state_digest)
            verification().state_revealed(session, lease, result.state_cid)
        case CompleteReplay():
            verification().replay_revealed(session, lease, result.end_leaf, result.salt)
        case CompletePin():
            record_pin(session, lease, result.proof, found.size)
            wake_after_commit(session, "jobs.dispatch", job.id)
        case CompletePublish():
            assert unit is not None
            publishing.published(session, lease, unit)
    move_lease(session, lease, LeaseEvent.COMPLETE, at=now)


def _place_in_time(session: Session, job: Job, unit: Unit) -> None:
    """Note how late a unit is. The slot of a late one, which waited for it, goes on from what it left unsent.

    It is verified and paid like any other; one that is too late to be used has what it sent counted as unsent.
    """
    unit.rounds_late = job.current_round - unit.round
    if not unit.rounds_late:
        return
    too_late = unit.rounds_late > MAX_STALENESS
    if too_late:
        unit.included, unit.exclusion_reason = False, "too_late"
    [slot] = [slot for slot in repository.slots(session, job.id) if slot.slot == unit.slot]
    slot_states.go_on_from(slot, unit, restored=too_late)


def _require_kind(lease: Lease, kind: LeaseKind) -> None:
    if lease.kind != kind:
        raise WrongStep(
            f"This is a {lease.kind} lease; the body is that of a {kind} lease.",
            remedy=f"Send what a {lease.kind} lease takes; /docs shows the schemas.",
        )


def _require_signed(domain: Domain, message: UnitCommitment, signature: str) -> None:
    try:
        signer = recover(typed_data(domain, message), signature)
    except ValueError:
        signer = "nobody"
    if signer != to_checksum_address(message.provider):
        raise InvalidSignature(
            f"The commitment's signature recovers to {signer}, the lease is held by {message.provider}.",
            field="commitment_signature",
            remedy="Sign the EIP-712 UnitCommitment of this unit with the node's wallet.",
        )
