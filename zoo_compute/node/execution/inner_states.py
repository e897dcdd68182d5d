"""The state in a first segment that a verifier shows by its digest, beside the segment's end (decision 8).

Imports torch.
"""

from dataclasses import dataclass, replace

import numpy as np

from training_gym.model.layout import Arrays
from training_gym.model.tensors import tensor_digest
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, inner_leaf, leaf_at
from training_gym.units.unit import OnStep, finished, replayed, steps_of, train_steps
from zoo_compute.node.execution.tasks import Task, TaskError, take, take_count, take_hash
from zoo_protocol.hashing import from_hex


@dataclass(frozen=True, slots=True)
class InnerStateRequest:
    """Which state is asked for: that after ``step`` steps of the first segment, its digest made with ``nonce`` (32
    bytes), so that nobody can have it beforehand without the state itself."""

    step: int
    nonce: bytes

    @classmethod
    def of(cls, task: Task, unit: Unit, segment: int) -> "InnerStateRequest | None":
        """What a ``replay`` task asks for; None: nothing but the end.

        Raises:
            TaskError: malformed, or not in a first segment.
        """
        if task.get("inner") is None:
            return None
        asked = take(task, "inner", dict)
        step = take_count(asked, "step", unit.spec.training.segment_steps + 1)
        if segment > 0 or step == 0:
            raise TaskError("invalid_task", "task.inner", f"step {step} of segment {segment} is not in the first")
        return cls(step, from_hex(take_hash(asked, "nonce")))

    def digest(self, state: Arrays) -> bytes:
        """Tensor digest (32 bytes) of the state's arrays, before them the nonce as one, ``!nonce``."""
        return tensor_digest({"!nonce": np.frombuffer(self.nonce, "<f4"), **state})


def replay_with_inner_digest(
    unit: Unit, inner: InnerStateRequest, start_leaf: bytes, on_step: OnStep
) -> tuple[bytes, bytes]:
    """Leaf 1 as :func:`training_gym.units.unit.replay` gives it, and the digest of the inner state.

    A state is a value, so training on from it gives the same bits as training through.

    Raises:
        StartStateMismatch, TrainingDiverged: as that.
    """
    training = replace(unit.spec.training, segment_steps=inner.step)
    state, _ = replayed(replace(unit, spec=replace(unit.spec, training=training)), 0, start_leaf, None, on_step)
    digest = inner.digest(state)
    state, loss = train_steps(unit, state, steps_of(unit.spec, 0)[inner.step :], on_step)
    if unit.spec.segments > 1:
        return inner_leaf(unit, 1, state, error_feedback_digest(unit.slot_state.error_feedback)), digest
    return leaf_at(unit.place, 1, finished(unit, [], state, loss).state_digests[-1]), digest
