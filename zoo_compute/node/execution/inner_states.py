"""Digest of a first segment's inner state, reported together with its end.

Imports torch.
"""

from dataclasses import dataclass, replace

import numpy as np

from training_gym.model.layout import Arrays
from training_gym.model.tensors import tensor_digest
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, inner_leaf, leaf_at
from training_gym.units.unit import OnStep, replay_end_state, segment_steps, train_steps, unit_result
from zoo_compute.node.execution.tasks import Task, TaskError, take, take_count, take_hash
from zoo_protocol.hashing import from_hex


@dataclass(frozen=True, slots=True)
class InnerStateRequest:
    """Request for the digest of the state after ``step`` steps of the first segment.

    The digest includes ``nonce`` (32 bytes), so that it cannot be computed without the state itself.
    """

    step: int
    nonce: bytes

    @classmethod
    def of(cls, task: Task, unit: Unit, segment: int) -> "InnerStateRequest | None":
        """Parse the request of a ``replay`` task; None if only the end is requested.

        Raises:
            TaskError: malformed, or not in a first segment.
        """
        if task.get("inner") is None:
            return None
        asked = take(task, "inner", dict)
        step = take_count(asked, "step", unit.spec.training.segment_steps + 1)
        if segment > 0 or step == 0:
            raise TaskError("invalid_task", "task.inner", f"step {step} of segment {segment} is not in the first one")
        return cls(step, from_hex(take_hash(asked, "nonce")))

    def digest(self, state: Arrays) -> bytes:
        """Return the tensor digest (32 bytes) of nonce (array ``!nonce``) and state."""
        return tensor_digest({"!nonce": np.frombuffer(self.nonce, "<f4"), **state})


def replay_with_inner_digest(
    unit: Unit, inner: InnerStateRequest, start_leaf: bytes, on_step: OnStep
) -> tuple[bytes, bytes]:
    """Return leaf 1, as :func:`~training_gym.units.unit.replay` does, and the inner digest.

    Interrupting the training at the inner state does not change the bits.

    Raises:
        StartStateMismatch, TrainingDiverged: as :func:`training_gym.units.unit.replay`.
    """
    training = replace(unit.spec.training, segment_steps=inner.step)
    state, _ = replay_end_state(replace(unit, spec=replace(unit.spec, training=training)), 0, start_leaf, None, on_step)
    digest = inner.digest(state)
    state, loss = train_steps(unit, state, segment_steps(unit.spec, 0)[inner.step :], on_step)
    if unit.spec.segments > 1:
        return inner_leaf(unit, 1, state, error_feedback_digest(unit.slot_state.error_feedback)), digest
    return leaf_at(unit.place, 1, unit_result(unit, [], state, loss).state_digests[-1]), digest
