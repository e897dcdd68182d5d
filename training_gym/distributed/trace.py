"""A unit of work as data: its input, its result, the states between its segments and what its leaves bind. No torch.

A boundary state holds, per parameter, ``parameters.<name>``, ``exp_avg.<name>`` and, unless Muon trains it,
``exp_avg_sq.<name>``; the boundary's number gives the steps done. Its leaf's digest is
SHA2-256(tensor digest of the state || tensor digest of the error feedback || SHA2-256 of the payload), where the
payload is empty before the end, and the error feedback is the unit's input before the end and its output there.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training_gym.checkpoint import load_error_feedback
from training_gym.config import TrainingConfig, TrainingSpec
from training_gym.data.dataset import Tokens
from training_gym.errors import ResultMismatch
from training_gym.models.layout import Arrays, moment_names, parameter_shapes
from training_gym.tensors import Vector, load_arrays, tensor_digest
from zoo_protocol.hashing import sha256
from zoo_protocol.trace import state_leaf, trace_root


@dataclass(frozen=True, slots=True)
class Unit:
    """Everything that determines a unit's result.

    Attributes:
        spec: the job's specification.
        job_id: 0x hex of 32 bytes.
        round: outer round, from 0.
        slot: worker slot, from 0.
        checkpoint: the parameters that the round starts from.
        train: tokens of the training split.
        error_feedback: what this slot's earlier units left unsent [num_parameters].
        environment: environment class, 0x hex of 32 bytes.
        device: ``"cpu"`` or ``"cuda"``.
    """

    spec: TrainingSpec
    job_id: str
    round: int
    slot: int
    checkpoint: Arrays
    train: Tokens
    error_feedback: Vector
    environment: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What a worker hands in for a unit.

    Attributes:
        payload: the compressed pseudo-gradient (``compression.wire``).
        error_feedback: the file of what remains unsent, the input of this slot's next unit.
        leaves: one trace leaf per boundary, ``segments + 1``.
        end_state_digest: tensor digest of the state after the last step (32 bytes); it lets anyone see that the last
            leaf is about this payload and this error feedback.
        train_loss: mean loss in nats over the last segment.
        steps: inner steps done.
    """

    payload: bytes
    error_feedback: bytes
    leaves: list[bytes]
    end_state_digest: bytes
    train_loss: float
    steps: int

    @property
    def payload_sha256(self) -> bytes:
        return sha256(self.payload)

    @property
    def trace_root(self) -> bytes:
        return trace_root(self.leaves)


def state_path(workdir: Path, segment: int) -> Path:
    """Where a worker keeps the state that ``segment`` starts from."""
    return workdir / f"state-{segment}.safetensors"


def fresh_state(parameters: Arrays, training: TrainingConfig) -> Arrays:
    """The state a unit starts from: the checkpoint's parameters, an optimiser that has seen nothing."""
    state: Arrays = {}
    for name, array in parameters.items():
        state[f"parameters.{name}"] = array
        state |= {f"{moment}.{name}": np.zeros_like(array) for moment in moment_names(training, name, array.ndim)}
    return state


def load_boundary_state(spec: TrainingSpec, data: bytes) -> Arrays:
    """The boundary state in a file from a stranger.

    Raises:
        StateError: too large, malformed, not this specification's state, or not finite.
    """
    shapes = {
        f"{part}.{name}": shape
        for name, shape in parameter_shapes(spec.model).items()
        for part in ("parameters", *moment_names(spec.training, name, len(shape)))
    }
    return load_arrays(data, shapes, "state")


def boundary_leaf(unit: Unit, boundary: int, state: Arrays, error_feedback: Vector, payload: bytes = b"") -> bytes:
    """Leaf ``boundary`` of the unit's trace (32 bytes); see the module's docstring for what it binds."""
    return _leaf(unit, boundary, tensor_digest(state), error_feedback, payload)


def check_ends(unit: Unit, result: UnitResult) -> None:
    """Check, without training, that a result's first leaf is about this unit and its last about what was handed in.

    A replay vouches for leaves only; this is what ties them to the unit's input, payload and error feedback.

    Raises:
        ResultMismatch: wrong number of leaves, another start, or another payload or error feedback than committed.
        StateError: if the error feedback file is malformed.
    """
    last = unit.spec.segments
    if len(result.leaves) != last + 1:
        raise ResultMismatch("wrong_leaf_count", "leaves", f"has {len(result.leaves)} leaves, expected {last + 1}")
    if result.leaves[0] != boundary_leaf(
        unit, 0, fresh_state(unit.checkpoint, unit.spec.training), unit.error_feedback
    ):
        raise ResultMismatch("wrong_start_leaf", "leaves", "leaf 0 is not this round's checkpoint and error feedback")
    error_feedback = load_error_feedback(unit.spec, result.error_feedback)
    if result.leaves[last] != _leaf(unit, last, result.end_state_digest, error_feedback, result.payload):
        raise ResultMismatch("wrong_end_leaf", "leaves", f"leaf {last} is not of this payload and error feedback")


def _leaf(unit: Unit, boundary: int, state_digest: bytes, error_feedback: Vector, payload: bytes) -> bytes:
    digest = sha256(state_digest + tensor_digest({"error_feedback": error_feedback}) + sha256(payload))
    return state_leaf(unit.job_id, unit.round, unit.slot, boundary, digest, unit.environment)
