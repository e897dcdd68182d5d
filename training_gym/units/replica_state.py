"""Replica state: error feedback, moments and step count, carried between units. No torch.

The state lives on the replica's node. Traces commit to its digest, so it is transferred only for a replay or when
another node takes the replica over. A replica without one starts with zeros.
"""

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training_gym.model.layout import NamedArrays, moment_names
from training_gym.model.tensors import (
    TensorDigest,
    Vector,
    check_header,
    file_bytes,
    load_arrays,
    map_arrays,
    renamed,
    save_arrays,
    stream_arrays,
    tensor_digest,
    write_arrays,
)
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import StateError
from zoo_protocol.hashing import sha256

MAX_STEPS = 1 << 24
"""Limit of the count: float32 holds larger integers inexactly, and the moments' corrections have ended long before."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Start state of a replica's next unit, next to the round's parameters.

    Attributes:
        error_feedback: residual of earlier units [num_parameters].
        moments: moments of the inner optimiser, as ``<moment>.<parameter>`` (``model.layout.moment_names``).
        steps: inner steps that the moments have seen, at most ``MAX_STEPS``.
    """

    error_feedback: Vector
    moments: NamedArrays
    steps: int

    def digest(self) -> bytes:
        """Return the digest in traces (32 bytes); see :func:`slot_state_digest`."""
        return slot_state_digest(error_feedback_digest(self.error_feedback), self.moments, self.steps)


def error_feedback_digest(error_feedback: Vector) -> bytes:
    """Return the tensor digest of error feedback (32 bytes), constant until a unit's end."""
    return tensor_digest({"error_feedback": error_feedback})


def slot_state_digest(error_feedback_digest: bytes, moments: NamedArrays, steps: int) -> bytes:
    """Return SHA2-256 of error feedback's and moments' digests and steps (8 bytes)."""
    return slot_state_digest_of(error_feedback_digest, tensor_digest(moments), steps)


def slot_state_digest_of(error_feedback_digest: bytes, moments_digest: bytes, steps: int) -> bytes:
    """Return :func:`slot_state_digest` from the moments' tensor digest (32 bytes)."""
    return sha256(error_feedback_digest + moments_digest + struct.pack(">Q", steps))


def fresh_slot_state(spec: TrainingSpec) -> ReplicaState:
    """Return the initial state of every replica: all zeros."""
    moments = {name: np.zeros(shape, np.float32) for name, shape in _moment_shapes(spec).items()}
    return ReplicaState(np.zeros(spec.num_parameters(), np.float32), moments, 0)


def save_slot_state(state: ReplicaState) -> bytes:
    """Return the replica state file: equal states give equal bytes, hence equal CIDs."""
    return save_arrays(_arrays(state))


def write_slot_state(path: Path, state: ReplicaState) -> None:
    """Write the file of :func:`save_slot_state` without a copy of it in memory."""
    write_arrays(path, _arrays(state))


def _arrays(state: ReplicaState) -> NamedArrays:
    steps = np.array([state.steps], np.float32)
    return {"error_feedback": state.error_feedback, "steps": steps, **state.moments}


def load_slot_state(spec: TrainingSpec, data: bytes | Path | None) -> ReplicaState:
    """Return the state in a file, mapped if a path, or the fresh one.

    Raises:
        StateError: the file is not canonical.
    """
    if data is None:
        return fresh_slot_state(spec)
    shapes = slot_state_shapes(spec)
    arrays: NamedArrays
    if isinstance(data, Path):
        arrays = map_arrays(data, shapes, "slot_state")
        with data.open("rb") as file:
            header = file.read(data.stat().st_size - 4 * sum(math.prod(shape) for shape in shapes.values()))
    else:
        arrays, header = load_arrays(data, shapes, "slot_state"), data
    check_header(header, shapes, "slot_state")
    moments = renamed(arrays, {name: name for name in _moment_shapes(spec)})
    return ReplicaState(arrays["error_feedback"], moments, _steps(float(arrays["steps"][0])))


@dataclass(frozen=True, slots=True)
class SlotStateFacts:
    """Digests and step count of a replica state, for verification without its values.

    Attributes:
        error_feedback: digest of the error feedback (32 bytes).
        digest: digest of the whole state (32 bytes).
        steps: as in :class:`ReplicaState`.
    """

    error_feedback: bytes
    digest: bytes
    steps: int


def facts_of(state: ReplicaState) -> SlotStateFacts:
    """Return the facts of a loaded state."""
    return SlotStateFacts(error_feedback_digest(state.error_feedback), state.digest(), state.steps)


def stream_slot_state(spec: TrainingSpec, pieces: Iterable[bytes]) -> SlotStateFacts:
    """Return a file's facts, one piece in memory. Raises as :func:`load_slot_state`."""
    shapes = slot_state_shapes(spec)
    error_feedback, moments, steps, begun = TensorDigest(), TensorDigest(), 0.0, ""
    for name, values in stream_arrays(pieces, shapes, "slot_state"):
        if name == "steps":
            steps = float(values[0])
            continue
        digest = error_feedback if name == "error_feedback" else moments
        if name != begun:
            digest.begin(name, shapes[name])
            begun = name
        digest.update(values)
    count = _steps(steps)
    whole = slot_state_digest_of(error_feedback.digest(), moments.digest(), count)
    return SlotStateFacts(error_feedback.digest(), whole, count)


def _steps(steps: float) -> int:
    if not (0 <= steps <= MAX_STEPS and steps.is_integer()) or math.copysign(1, steps) < 0:
        raise StateError("out_of_range", "slot_state.steps", f"must be a whole number from 0 to {MAX_STEPS}")
    return int(steps)


def slot_state_shapes(spec: TrainingSpec) -> Mapping[str, tuple[int, ...]]:
    """Return the tensors of a replica state file."""
    return {"error_feedback": (spec.num_parameters(),), "steps": (1,), **_moment_shapes(spec)}


def slot_state_bytes(spec: TrainingSpec) -> int:
    """Return the size in bytes of a replica state file."""
    return file_bytes(slot_state_shapes(spec))


def _moment_shapes(spec: TrainingSpec) -> dict[str, tuple[int, ...]]:
    return {
        f"{moment}.{tensor.name}": tensor.shape
        for tensor in spec.trained_tensors()
        for moment in moment_names(spec.training, tensor)
    }
