"""Canary segments: a boundary state altered so that its segment was never trained. No torch."""

import numpy as np

from training_gym.model.tensors import save_arrays
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, inner_leaf, load_boundary_state

_MIN_SHARE, _MAX_SHARE = 1 / 64, 1 / 16
"""Bounds of the alteration, as a share of a tensor's movement since the checkpoint."""


def altered_state(unit: Unit, segment: int, data: bytes, seed: int) -> tuple[bytes, bytes] | None:
    """Return an altered start state of ``segment`` and its leaf; None if nothing has moved.

    Each tensor moves a few per cent further along its movement since the checkpoint, or back. Tensors without a
    gradient stay. Weight decay alone is equal for all nodes, so a difference there would expose the alteration. To
    detect the rest, a verifier would have to train the segments before.

    Args:
        data: file of the state.
        seed: secret; each seed gives another state.

    Raises:
        StateError: the file is malformed.
    """
    random = np.random.default_rng(seed)
    state = load_boundary_state(unit.spec, data)
    altered = dict(state)
    for name, start in unit.checkpoint.items():
        share = np.float32(random.uniform(_MIN_SHARE, _MAX_SHARE) * random.choice((-1, 1)))
        trained, has_moved = state[f"parameters.{name}"], state[f"exp_avg.{name}"] != 0
        altered[f"parameters.{name}"] = np.where(has_moved, trained + share * (trained - start), trained)
    leaf = inner_leaf(unit, segment, altered, error_feedback_digest(unit.slot_state.error_feedback))
    if all(np.array_equal(altered[name], state[name]) for name in state):
        return None
    return save_arrays(altered), leaf
