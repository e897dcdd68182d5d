"""What a unit's leaves bind, and the states between its segments. No torch.

A boundary state holds ``step`` (inner steps done, as one float32) and, per parameter, ``parameters.<name>``,
``exp_avg.<name>`` and ``exp_avg_sq.<name>``. Its leaf's digest is
SHA2-256(tensor digest of the state || tensor digest of the error feedback || SHA2-256 of the payload), where the
payload is empty before the end, and the error feedback is the unit's input before the end and its output there.
"""

import numpy as np

from training_gym.config import TrainingSpec
from training_gym.models.layout import Arrays, parameter_shapes
from training_gym.tensors import Vector, load_arrays, tensor_digest
from zoo_protocol.hashing import sha256
from zoo_protocol.trace import state_leaf

OPTIMIZER_FIELDS = ("exp_avg", "exp_avg_sq")


def fresh_state(parameters: Arrays) -> Arrays:
    """The state a unit starts from: the checkpoint's parameters, an optimiser that has seen nothing, step 0."""
    state = {"step": np.zeros(1, np.float32)}
    for name, array in parameters.items():
        state[f"parameters.{name}"] = array
        state |= {f"{field}.{name}": np.zeros_like(array) for field in OPTIMIZER_FIELDS}
    return state


def load_boundary_state(spec: TrainingSpec, data: bytes) -> Arrays:
    """The boundary state in a file from a stranger.

    Raises:
        StateError: too large, malformed, not this specification's state, or not finite.
    """
    shapes: dict[str, tuple[int, ...]] = {"step": (1,)}
    for name, shape in parameter_shapes(spec.model).items():
        shapes |= {f"{field}.{name}": shape for field in ("parameters", *OPTIMIZER_FIELDS)}
    return load_arrays(data, shapes, "state")


def boundary_leaf(
    job_id: str,
    round_: int,
    slot: int,
    boundary: int,
    state: Arrays,
    error_feedback: Vector,
    environment: str,
    payload: bytes = b"",
) -> bytes:
    """Leaf ``boundary`` of a unit's trace (32 bytes); see the module's docstring for what it binds."""
    digest = sha256(tensor_digest(state) + tensor_digest({"error_feedback": error_feedback}) + sha256(payload))
    return state_leaf(job_id, round_, slot, boundary, digest, environment)
