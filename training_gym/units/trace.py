"""A work unit as data: input, result, boundary states and trace leaves. No torch.

A boundary state holds, per parameter, ``parameters.<name>``, ``exp_avg.<name>`` and, unless Muon trains it,
``exp_avg_sq.<name>``; the boundary's number gives the steps done. Its leaf's digest is
SHA2-256(tensor digest of the parameters || digest of the replica state there || SHA2-256 of the payload).

Before the end the payload is empty. At the end of a unit that evaluates, SHA2-256 of its evaluation follows. The
replica state holds the state's moments and the error feedback: the unit's input before the end, its output there.
Digests alone therefore suffice to check both ends of a trace.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from training_gym.data.dataset import Split
from training_gym.model.layout import NamedArrays, moment_names
from training_gym.model.tensors import (
    LazyArrays,
    TensorDigest,
    file_bytes,
    load_arrays,
    map_arrays,
    renamed,
    stream_arrays,
    tensor_digest,
)
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ResultMismatch
from training_gym.units.replica_state import (
    MAX_STEPS,
    ReplicaState,
    SlotStateFacts,
    slot_state_digest,
    slot_state_digest_of,
)
from zoo_protocol.hashing import sha256
from zoo_protocol.verification.trace import state_leaf, trace_root

_PARAMETERS = "parameters."


@dataclass(frozen=True, slots=True)
class LeafContext:
    """Coordinates that a leaf commits to.

    Attributes:
        job_id: 0x hex of 32 bytes.
        round: outer round, from 0.
        slot: replica, from 0.
        environment: environment class, 0x hex of 32 bytes.
    """

    job_id: str
    round: int
    slot: int
    environment: str


@dataclass(frozen=True, slots=True)
class Unit:
    """All input that determines a unit's result.

    Attributes:
        spec: the job's specification.
        job_id, round, slot: coordinates, as in :class:`LeafContext`.
        checkpoint: parameters that the unit starts from.
        train: the training split, with the shards that the unit reads; None where no step runs.
        slot_state: state after this replica's earlier units.
        environment: environment class, 0x hex of 32 bytes.
        device: ``"cpu"`` or ``"cuda"``.
        base: weights of the frozen base model by file name, of an adapter's unit.
        validation: the validation split with the shards that the unit evaluates; None evaluates nothing.
        evaluated: the checkpoint's own parameters, if its payload has changed those that the unit starts from.
    """

    spec: TrainingSpec
    job_id: str
    round: int
    slot: int
    checkpoint: NamedArrays
    train: Split | None
    slot_state: ReplicaState
    environment: str
    device: str = "cpu"
    base: Mapping[str, Path] | None = None
    validation: Split | None = None
    evaluated: NamedArrays | None = None

    @property
    def place(self) -> LeafContext:
        return LeafContext(self.job_id, self.round, self.slot, self.environment)


@dataclass(frozen=True, slots=True)
class UnitResult:
    """Result that a node submits for a unit.

    Attributes:
        payload: the compressed pseudo-gradient (``compress.payload_format``).
        slot_state: replica state with which this replica's next unit starts.
        slot_state_digest: digest of that state (32 bytes).
        place: the unit's coordinates in its leaves.
        state_digests: digest of the state at each boundary (32 bytes each), ``segments + 1``, for disputes.
        end_parameters_digest: tensor digest of the parameters after the last step (32 bytes). With it anyone can check
            that the last leaf commits to this payload and this replica state.
        train_loss: mean loss in nats over the last segment.
        steps: inner steps done.
        evaluation: record of the checkpoint's losses (``evaluate.sums``); empty if the unit evaluates nothing.
    """

    payload: bytes
    slot_state: ReplicaState = field(compare=False)  # its digest is compared
    slot_state_digest: bytes
    place: LeafContext
    state_digests: list[bytes]
    end_parameters_digest: bytes
    train_loss: float
    steps: int
    evaluation: bytes = b""

    @property
    def payload_sha256(self) -> bytes:
        return sha256(self.payload)

    @property
    def leaves(self) -> list[bytes]:
        """One trace leaf per boundary (32 bytes each), ``segments + 1``."""
        return [leaf_at(self.place, boundary, digest) for boundary, digest in enumerate(self.state_digests)]

    @property
    def trace_root(self) -> bytes:
        return trace_root(self.leaves)


def state_path(workdir: Path, segment: int) -> Path:
    """Return the path of the state that ``segment`` starts from."""
    return workdir / f"state-{segment}.safetensors"


def start_state(unit: Unit) -> NamedArrays:
    """Return the state a unit starts from: the checkpoint's parameters, the replica's moments."""
    moments = unit.slot_state.moments
    parameters = renamed(unit.checkpoint, {f"{_PARAMETERS}{name}": name for name in unit.checkpoint})
    return LazyArrays({**parameters.sources, **renamed(moments, {name: name for name in moments}).sources})


def parameters_of(state: NamedArrays) -> NamedArrays:
    """Return a boundary state's parameters, under their own names."""
    return renamed(state, {name.removeprefix(_PARAMETERS): name for name in state if name.startswith(_PARAMETERS)})


def moments_of(state: NamedArrays) -> NamedArrays:
    """Return a boundary state's moments, named as in a replica state."""
    return renamed(state, {name: name for name in state if not name.startswith(_PARAMETERS)})


def load_boundary_state(spec: TrainingSpec, data: bytes | Path) -> NamedArrays:
    """Return an untrusted file's boundary state, mapped if a path.

    Raises:
        StateError: malformed, or of another specification.
    """
    shapes = boundary_shapes(spec)
    return map_arrays(data, shapes, "state") if isinstance(data, Path) else load_arrays(data, shapes, "state")


def boundary_shapes(spec: TrainingSpec) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a boundary state file."""
    return {
        f"{part}.{tensor.name}": tensor.shape
        for tensor in spec.trained_tensors()
        for part in ("parameters", *moment_names(spec.training, tensor))
    }


def boundary_state_bytes(spec: TrainingSpec) -> int:
    """Return the size in bytes of a boundary state file."""
    return file_bytes(boundary_shapes(spec))


def stream_inner_leaf(
    spec: TrainingSpec, place: LeafContext, boundary: int, start: SlotStateFacts, pieces: Iterable[bytes]
) -> bytes:
    """Return a boundary state file's :func:`inner_leaf` (32 bytes)."""
    return leaf_at(place, boundary, stream_inner_digest(spec, boundary, start.error_feedback, start.steps, pieces))


def stream_inner_digest(
    spec: TrainingSpec, boundary: int, error_feedback: bytes, steps: int, pieces: Iterable[bytes]
) -> bytes:
    """Return a boundary state file's :func:`inner_digest` (32 bytes), one piece in memory.

    Args:
        error_feedback, steps: digest and step count of the replica state that the unit started with.

    Raises:
        StateError: see :func:`load_boundary_state`; the file must have the bytes that ``tensors.save_arrays`` writes.
    """
    shapes = boundary_shapes(spec)
    parameters, moments, begun = TensorDigest(), TensorDigest(), ""
    for name, values in stream_arrays(pieces, shapes, "state"):
        digest = parameters if name.startswith("parameters.") else moments
        if name != begun:
            digest.begin(name.removeprefix("parameters."), shapes[name])
            begun = name
        digest.update(values)
    steps_there = min(steps + boundary * spec.training.segment_steps, MAX_STEPS)
    return state_digest(parameters.digest(), slot_state_digest_of(error_feedback, moments.digest(), steps_there))


def state_digest(parameters: bytes, slot_state: bytes, payload: bytes = b"", evaluation: bytes = b"") -> bytes:
    """Return the digest (32 bytes) of a boundary state; parts are digests or files."""
    return sha256(parameters + slot_state + sha256(payload) + (sha256(evaluation) if evaluation else b""))


def inner_digest(unit: Unit, boundary: int, state: NamedArrays, error_feedback: bytes) -> bytes:
    """Return an inner boundary state's digest; ``error_feedback``: the initial one's."""
    slot_state = slot_state_digest(error_feedback, moments_of(state), steps_after(unit, boundary))
    return state_digest(tensor_digest(parameters_of(state)), slot_state)


def leaf_at(place: LeafContext, boundary: int, digest: bytes) -> bytes:
    """Return leaf ``boundary`` (32 bytes) of a unit's trace, from the digest of its state."""
    return state_leaf(place.job_id, place.round, place.slot, boundary, digest, place.environment)


def boundary_leaf(
    place: LeafContext,
    boundary: int,
    parameters: bytes,
    slot_state: bytes,
    payload: bytes = b"",
    evaluation: bytes = b"",
) -> bytes:
    """Return leaf ``boundary`` (32 bytes) of a trace; arguments as :func:`state_digest`."""
    return leaf_at(place, boundary, state_digest(parameters, slot_state, payload, evaluation))


def inner_leaf(unit: Unit, boundary: int, state: NamedArrays, error_feedback: bytes) -> bytes:
    """Return an inner boundary state's leaf (32 bytes); arguments as :func:`inner_digest`."""
    return leaf_at(unit.place, boundary, inner_digest(unit, boundary, state, error_feedback))


def steps_after(unit: Unit, boundary: int) -> int:
    """Return the inner steps that the replica's moments have seen at ``boundary``."""
    return min(unit.slot_state.steps + boundary * unit.spec.training.segment_steps, MAX_STEPS)


@dataclass(frozen=True, slots=True)
class TraceEndpoints:
    """Commitments of the two ends of a trace: digests of 32 bytes, and the payload itself.

    Attributes:
        start: digest of the unit's initial replica state; None if unknown, then leaf 0 is not checked.
        parameters: digest of the parameters after the last step.
        slot_state: digest of the replica state at the end.
        payload, evaluation: as submitted.
    """

    start: bytes | None
    parameters: bytes
    slot_state: bytes
    payload: bytes
    evaluation: bytes = b""


def check_ends(
    place: LeafContext, spec: TrainingSpec, checkpoint: NamedArrays, leaves: Sequence[bytes], ends: TraceEndpoints
) -> None:
    """Check without training that a trace binds this unit and the submitted result.

    A replay proves leaves only; this check binds them to the unit's input, payload and replica state.

    Raises:
        ResultMismatch: wrong number of leaves, another start, or another payload or replica state than committed.
    """
    last = spec.segments
    if len(leaves) != last + 1:
        raise ResultMismatch("wrong_leaf_count", "leaves", f"has {len(leaves)} leaves, expected {last + 1}")
    if ends.start is not None and leaves[0] != boundary_leaf(place, 0, tensor_digest(checkpoint), ends.start):
        raise ResultMismatch(
            "wrong_start_leaf", "leaves", "leaf 0 does not match this round's checkpoint and replica state"
        )
    if leaves[last] != boundary_leaf(place, last, ends.parameters, ends.slot_state, ends.payload, ends.evaluation):
        detail = f"leaf {last} does not match this payload, replica state and evaluation"
        raise ResultMismatch("wrong_end_leaf", "leaves", detail)


def check_result(unit: Unit, result: UnitResult) -> None:
    """Apply :func:`check_ends` to a result with all its files. Raises ResultMismatch."""
    ends = TraceEndpoints(
        unit.slot_state.digest(),
        result.end_parameters_digest,
        result.slot_state_digest,
        result.payload,
        result.evaluation,
    )
    check_ends(unit.place, unit.spec, unit.checkpoint, result.leaves, ends)
