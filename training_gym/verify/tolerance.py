"""Distance of two end states of a segment whose bits cannot be compared. No torch."""

import math
from dataclasses import dataclass

import numpy as np

from training_gym.compress.payload_format import decode, encode_step, uplink
from training_gym.model.layout import Arrays, NamedArrays
from training_gym.model.tensors import flatten, unflatten
from training_gym.spec.errors import ResultMismatch
from training_gym.units.replica_state import ReplicaState
from training_gym.units.trace import Unit, parameters_of

MAX_PAYLOAD_DISTANCE = 0.01
"""Allowed distance of a payload from its recomputation, as a share of its length.

The rounding of a sum can move a scale by 2**-8, or a value at the border of two levels.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """Relative L2 distances of parameters: over all, and the widest of a single tensor."""

    whole: float
    widest: float


def difference(claimed: NamedArrays, computed: NamedArrays) -> Difference:
    """Return the relative distance of two boundary states' parameters.

    Both have the same tensors. A tensor of zeros has an infinite distance from anything else.
    """
    apart, length, widest = 0.0, 0.0, 0.0
    theirs = parameters_of(claimed)
    for name, ours in parameters_of(computed).items():
        distance = float(np.sum(np.square(np.subtract(theirs[name], ours, dtype=np.float64))))
        size = float(np.sum(np.square(ours, dtype=np.float64)))
        apart, length, widest = apart + distance, length + size, max(widest, _share(distance, size))
    return Difference(_share(apart, length), widest)


def _share(squared_distance: float, squared_length: float) -> float:
    if squared_distance == 0:
        return 0.0
    return math.sqrt(squared_distance / squared_length) if squared_length else math.inf


def claimed_end(unit: Unit, slot_state: ReplicaState, payload: bytes) -> Arrays:
    """Return a unit's end parameters, from its replica state and payload.

    Payload and new error feedback sum to pseudo-gradient plus old error feedback, up to float32 rounding
    (``units.unit``). A provider could split that sum arbitrarily, so the sum is compressed again and compared with the
    payload.

    Raises:
        PayloadError: malformed payload, or a sum that is not finite.
        ResultMismatch: compressing that sum gives another payload.
    """
    spec = unit.spec
    decay = np.float32(spec.training.error_feedback_decay)
    sent = decode(spec, payload).dense()
    wanted = slot_state.error_feedback + sent
    again = encode_step(uplink(spec), wanted)[1].dense()
    apart, length = (float(np.sum(np.square(one, dtype=np.float64))) for one in (again - sent, again))
    if _share(apart, length) > MAX_PAYLOAD_DISTANCE:
        raise ResultMismatch("payload_mismatch", "payload", "differs from the compressed result of the unit")
    pseudo_gradient = wanted - decay * unit.slot_state.error_feedback
    end = unflatten(spec, flatten(unit.checkpoint) - pseudo_gradient)
    return {f"parameters.{name}": array for name, array in end.items()}
