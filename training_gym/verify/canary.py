"""A boundary state altered a little, so that its segment is one that nobody has trained. No torch."""

import numpy as np

from training_gym.model.tensors import save_arrays
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, inner_leaf, load_boundary_state

_LEAST, _MOST = 1 / 64, 1 / 16
"""By which share of its movement since the checkpoint a tensor is moved on or back."""


def altered_state(unit: Unit, segment: int, data: bytes, seed: int) -> tuple[bytes, bytes] | None:
    """The file of an altered start state of ``segment``, and its leaf (32 bytes); None where nothing has moved yet.

    Each tensor goes a few per cent further along its movement since the checkpoint, or back. What has had no gradient
    stays: decay alone is the same for everybody, so a bit of difference there would give the alteration away. To tell
    the rest from what was trained takes the training of the segments before.

    Args:
        data: the state's file.
        seed: secret; another one makes another state.

    Raises:
        StateError: malformed file.
    """
    dice = np.random.default_rng(seed)
    state = load_boundary_state(unit.spec, data)
    altered = dict(state)
    for name, start in unit.checkpoint.items():
        share = np.float32(dice.uniform(_LEAST, _MOST) * dice.choice((-1, 1)))
        trained, has_moved = state[f"parameters.{name}"], state[f"exp_avg.{name}"] != 0
        altered[f"parameters.{name}"] = np.where(has_moved, trained + share * (trained - start), trained)
    leaf = inner_leaf(unit, segment, altered, error_feedback_digest(unit.slot_state.error_feedback))
    if all(np.array_equal(altered[name], state[name]) for name in state):
        return None
    return save_arrays(altered), leaf
