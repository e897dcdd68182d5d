"""Checks of results against storage and the unit's trace. No session is open during a check."""

import hmac
from dataclasses import dataclass
from typing import Any

from market.domain.lifecycle import UnitStatus
from market.jobs.models import Job
from market.platform.http.errors import StorageDown
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError, StorageUnavailable
from market.training.checkpoints.service import load_parameters
from market.training.leases.errors import WrongStep
from market.training.leases.models import Lease
from market.training.leases.schemas import (
    CompleteEvaluation,
    CompleteFollow,
    CompletePin,
    CompletePublish,
    CompleteReplay,
    CompleteReveal,
    CompleteTraining,
    LeaseKind,
)
from market.training.replication.pins import pin_proof
from market.training.units.facts import unit_spec
from market.training.units.models import Unit
from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, payload_size
from training_gym.evaluate.extent import check_receipt_record, check_record
from training_gym.exchange.deadlines import start_slot_state
from training_gym.exchange.early_start import start_parameters
from training_gym.model.layout import NamedArrays
from training_gym.spec.config import CHUNK, TrainingSpec
from training_gym.spec.errors import GymError, PayloadError
from training_gym.units import trace as trace_of_unit
from training_gym.units.replica_state import (
    ReplicaState,
    SlotStateFacts,
    facts_of,
    fresh_slot_state,
    slot_state_bytes,
    stream_slot_state,
)
from training_gym.units.trace import TraceEndpoints, boundary_state_bytes, check_ends, stream_inner_leaf
from zoo_protocol.content.cid import InvalidCid
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.verification import trace

Completion = (
    CompleteTraining
    | CompleteReveal
    | CompleteReplay
    | CompletePin
    | CompletePublish
    | CompleteFollow
    | CompleteEvaluation
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A result that failed a check: stable ``reason``, field at fault, and a sentence."""

    reason: str
    field: str
    detail: str


def check(storage: Storage, lease: Lease, found: tuple[Job, Unit] | None, result: Completion) -> Refusal | int:
    """Return the number of a result's bytes, uploaded or proved to be held, or its refusal.

    Raises WrongStep, StorageDown.
    """
    try:
        match result:
            case CompleteTraining():
                require_kind(lease, LeaseKind.TRAIN)
                assert found is not None  # every train lease has a unit
                return _check_training(storage, *found, result)
            case CompleteReveal():
                require_kind(lease, LeaseKind.REVEAL)
                assert found is not None  # every reveal lease has a unit
                return _check_reveal(storage, *found, lease.task, result) or 0
            case CompleteReplay():
                require_kind(lease, LeaseKind.REPLAY)
                if lease.task.get("across"):
                    assert found is not None  # every replay lease has a unit
                    boundary, cid = lease.task["segment"] + 1, result.end_state_cid
                    refusal = _check_boundary_state(storage, *found, boundary, "end_state_cid", cid, result.end_leaf)
                    return refusal or 0
                # verification checks the rest in the transaction that applies it
                return _check_inner_digest(lease.task, result) or 0
            case CompletePin():
                require_kind(lease, LeaseKind.PIN)
                expected, size = pin_proof(storage, lease.task["nonce"], lease.task["cids"])
                if not hmac.compare_digest(expected, result.proof):
                    return Refusal("wrong_pin_proof", "proof", "The proof does not cover the checkpoint's bytes.")
                return size
            case CompletePublish():
                require_kind(lease, LeaseKind.PUBLISH)
                assert found is not None  # every publish lease has a unit
                asked, digest = lease.task["slot_state_cid"], found[1].slot_state_digest
                refusal = _check_slot_state(storage, *found, "published_cid", result.published_cid, asked, digest)
                return refusal or 0
            case CompleteFollow():
                require_kind(lease, LeaseKind.FOLLOW)
                return 0  # unproved: only the order of hot spares depends on it
            case CompleteEvaluation():
                require_kind(lease, LeaseKind.EVALUATE)
                return _check_record(lease.task, result.record) or 0
    except StorageUnavailable as error:
        raise StorageDown(str(error)) from error


def _check_record(task: dict[str, Any], record: str) -> Refusal | None:
    try:
        check_receipt_record(TrainingSpec.from_dict(task["spec"]), record.encode(), task["split_samples"])
    except GymError as error:
        return Refusal(error.code, "record", str(error))
    return None


def _check_training(storage: Storage, job: Job, unit: Unit, result: CompleteTraining) -> Refusal | int:
    if unit.status != UnitStatus.COMMITTED:
        raise WrongStep("The unit has no commitment.", remedy="Commit the trace root and payload hash first.")
    spec = unit_spec(job, unit)
    declared = unit.payload_cid, unit.slot_state_cid, unit.slot_state_digest
    if unit.payload_cid is not None and declared != (
        result.payload_cid,
        result.slot_state_cid,
        result.slot_state_digest,
    ):
        return Refusal("payload_mismatch", "payload_cid", "The commitment declared another payload or replica state.")
    if len(result.leaves) != job.segments + 1:
        detail = f"There are {len(result.leaves)} leaves; {job.segments} segments have {job.segments + 1}."
        return Refusal("wrong_leaves", "leaves", detail)
    if to_hex(trace.trace_root([from_hex(leaf) for leaf in result.leaves])) != unit.trace_root:
        return Refusal("wrong_leaves", "leaves", "The leaves do not lead to the committed trace root.")
    try:
        payload = storage.get(result.payload_cid, max_bytes=payload_size(spec))
    except StorageUnavailable:
        raise
    except (StorageError, InvalidCid) as error:
        return Refusal("payload_missing", "payload_cid", f"The payload cannot be read: {error}")
    if to_hex(sha256(payload)) != result.payload_sha256:
        return Refusal("payload_mismatch", "payload_sha256", "The payload has another SHA2-256.")
    committed = trace.payload_hash(sha256(payload), unit.provider, from_hex(result.salt))
    if to_hex(committed) != unit.payload_hash:
        return Refusal("payload_mismatch", "salt", "Payload and salt do not hash to the committed payload hash.")
    try:
        decode(spec, payload)
    except PayloadError as error:
        return Refusal("payload_malformed", "payload_cid", f"The payload does not decode: {error}")
    refusal = _check_ends(storage, spec, job, unit, result, payload)
    return refusal or len(payload)


def _check_ends(
    storage: Storage, spec: TrainingSpec, job: Job, unit: Unit, result: CompleteTraining, payload: bytes
) -> Refusal | None:
    """Check the first and last leaf against input and completion; replays check the others."""
    # The digest of a start state with a restored payload is unknown. The replay of the first segment checks that leaf.
    ends = TraceEndpoints(
        start=None if unit.start_restored_payload_cid is not None else _start_digest(spec, unit),
        parameters=from_hex(result.end_parameters_digest),
        slot_state=from_hex(result.slot_state_digest),
        payload=payload,
        evaluation=(result.evaluation or "").encode(),
    )
    leaves = [from_hex(leaf) for leaf in result.leaves]
    try:
        if ends.evaluation:  # a split may have no sample for this slot, which the replay checks too
            check_record(spec, ends.evaluation, spec.validation_samples)
        check_ends(_place(job, unit), spec, _checkpoint(storage, spec, unit), leaves, ends)
    except GymError as error:
        return Refusal(error.code, error.field, str(error))
    return None


def _start_digest(spec: TrainingSpec, unit: Unit) -> bytes:
    if unit.start_slot_state_digest is None:
        return fresh_slot_state(spec).digest()
    return from_hex(unit.start_slot_state_digest)


def _check_reveal(
    storage: Storage, job: Job, unit: Unit, task: dict[str, Any], result: CompleteReveal
) -> Refusal | None:
    asked = task["slot_state_cid"]
    if asked is not None:
        digest = requested_digest(unit, task)
        refusal = _check_slot_state(storage, job, unit, "slot_state_cid", result.slot_state_cid, asked, digest)
        if refusal is not None:
            return refusal
    if task["segment"] == 0:  # starts from the checkpoint and the replica state
        # An unchecked file would be recorded as a claimed end state and unpinned later.
        detail = "state_cid must be null: a first segment starts from no state, a last one ends in the replica state."
        return None if result.state_cid is None else Refusal("wrong_state", "state_cid", detail)
    leaf = None if unit.leaves is None else unit.leaves[task["segment"]]
    return _check_boundary_state(storage, job, unit, task["segment"], "state_cid", result.state_cid, leaf)


def requested_digest(unit: Unit, task: dict[str, Any]) -> str | None:
    """Return the digest of the replica state that a reveal lease requests for a comparison."""
    return unit.start_slot_state_digest if task.get("comparison_id") is None else unit.slot_state_digest


def _check_slot_state(
    storage: Storage, job: Job, unit: Unit, field: str, given: str | None, asked: str, digest: str | None
) -> Refusal | None:
    """Check that storage has the requested replica state with the declared digest."""
    if given != asked:
        return Refusal("wrong_slot_state", field, f"{field} is {given}; expected the declared replica state {asked}.")
    spec = unit_spec(job, unit)
    try:
        found = stream_slot_state(spec, storage.open_stream(asked, max_bytes=slot_state_bytes(spec))).digest
    except StorageUnavailable:
        raise
    except (StorageError, InvalidCid) as error:
        return Refusal("slot_state_missing", field, f"The replica state cannot be read: {error}")
    except GymError as error:
        return Refusal("wrong_slot_state", field, str(error))
    if digest is None or found != from_hex(digest):
        return Refusal("wrong_slot_state", field, f"The file's replica state does not have the digest {digest}.")
    return None


def _check_inner_digest(task: dict[str, Any], result: CompleteReplay) -> Refusal | None:
    inner = task.get("inner")
    if inner is not None and result.inner_digest is None:
        detail = f"inner_digest is missing; the task requests the digest of the state after inner step {inner['step']}."
        return Refusal("inner_digest_missing", "inner_digest", detail)
    if inner is None and result.inner_digest is not None:
        return Refusal("wrong_inner_digest", "inner_digest", "The task requests no inner state.")
    return None


def _check_boundary_state(
    storage: Storage, job: Job, unit: Unit, boundary: int, field: str, cid: str | None, expected: str | None
) -> Refusal | None:
    """Check the leaf (0x hex) of an uploaded state before compression."""
    if cid is None:
        return Refusal("state_missing", field, f"{field} is null; expected the state of boundary {boundary}.")
    spec = unit_spec(job, unit)
    start = _start(storage, spec, unit)
    try:
        pieces = storage.open_stream(cid, max_bytes=boundary_state_bytes(spec))
        leaf = to_hex(stream_inner_leaf(spec, _place(job, unit), boundary, start, pieces))
    except StorageUnavailable:
        raise
    except (StorageError, InvalidCid) as error:
        return Refusal("state_missing", field, f"The state cannot be read: {error}")
    except GymError as error:
        return Refusal(error.code, field, str(error))
    if leaf != expected:
        return Refusal("wrong_state", field, f"The state does not hash to the leaf of boundary {boundary}.")
    return None


def _start(storage: Storage, spec: TrainingSpec, unit: Unit) -> SlotStateFacts:
    """Return the unit's public start replica state; read whole only to restore a payload."""
    cid = unit.start_slot_state_cid
    if cid is None or unit.start_restored_payload_cid is not None:
        return facts_of(_whole_start(storage, spec, unit))
    try:
        return stream_slot_state(spec, storage.open_stream(cid, max_bytes=slot_state_bytes(spec)))
    except StorageError as error:
        raise StorageUnavailable(f"The unit's start state cannot be read: {error}") from error


def _whole_start(storage: Storage, spec: TrainingSpec, unit: Unit) -> ReplicaState:
    cid, payload_cid = unit.start_slot_state_cid, unit.start_restored_payload_cid
    try:
        data = None if cid is None else storage.get(cid, max_bytes=slot_state_bytes(spec))
        payload = None if payload_cid is None else storage.get(payload_cid, max_bytes=_max_payload_bytes(spec))
    except StorageError as error:
        raise StorageUnavailable(f"The unit's start state cannot be read: {error}") from error
    return start_slot_state(spec, data, payload)


def unit_of(storage: Storage, spec: TrainingSpec, job: Job, unit: Unit) -> trace_of_unit.Unit:
    """Return the unit's whole input for the training library, except the data.

    Raises:
        StorageUnavailable: the input, which is public by now, cannot be read.
    """
    return trace_of_unit.Unit(
        spec=spec,
        job_id=job.id,
        round=unit.round,
        slot=unit.slot,
        checkpoint=_checkpoint(storage, spec, unit),
        train=None,
        slot_state=_whole_start(storage, spec, unit),
        environment=job.environment_class or "",
    )


def _checkpoint(storage: Storage, spec: TrainingSpec, unit: Unit) -> NamedArrays:
    cid = unit.start_eager_payload_cid
    try:
        payload = None if cid is None else storage.get(cid, max_bytes=_max_payload_bytes(spec))
        return start_parameters(spec, load_parameters(storage, spec, unit.start_checkpoint_cid), payload)
    except StorageError as error:
        raise StorageUnavailable(f"The unit's checkpoint cannot be read: {error}") from error


def _max_payload_bytes(spec: TrainingSpec) -> int:
    # CHUNK - 1 entries can take more bytes than CHUNK entries, which need no indices.
    return max(payload_size(with_top_k(spec, top_k)) for top_k in (CHUNK - 1, CHUNK))


def _place(job: Job, unit: Unit) -> trace_of_unit.LeafContext:
    return trace_of_unit.LeafContext(job.id, unit.round, unit.slot, job.environment_class or "")


def require_kind(lease: Lease, kind: LeaseKind) -> None:
    if lease.kind != kind:
        raise WrongStep(
            f"This is a {lease.kind} lease; the body is that of a {kind} lease.",
            remedy=f"Send the body of a {lease.kind} lease; /docs has the schemas.",
        )
