"""How far two states of a segment's end are apart, where their bits cannot be compared. No torch."""

import math
from dataclasses import dataclass

import numpy as np

from training_gym.compress.payload_format import decode, encode_step, uplink
from training_gym.model.layout import Arrays
from training_gym.model.tensors import flatten, unflatten
from training_gym.spec.errors import ResultMismatch
from training_gym.units.replica_state import ReplicaState
from training_gym.units.trace import Unit, parameters_of

PAYLOAD_APART = 0.01
"""How far a payload may be from what compressing gives again, as a share of its length: the rounding of a sum can move
a scale by 2**-8, or a level at the border of two."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Relative L2 distances of parameters: over all of them, and of the tensor in which it is widest."""

    whole: float
    widest: float


def difference(claimed: Arrays, computed: Arrays) -> Difference:
    """How far the parameters of two boundary states are apart, as shares of the length of those ``computed``.

    Both have the same tensors. A tensor of zeros counts as apart by infinity from anything else.
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
    """The parameters that a unit ended in, from the slot state that it handed on and its payload.

    What was sent and what is left unsent make up what was learned and what was unsent before, but for a rounding of
    float32 each (``distributed.unit``). The sum says nothing of its parts, so it is compressed again: who sends
    anything else, and calls the difference unsent, has the same sum.

    Raises:
        PayloadError: malformed payload, or a sum that is not finite.
        ResultMismatch: the payload is not what compressing that sum gives.
    """
    spec = unit.spec
    decay = np.float32(spec.training.error_feedback_decay)
    sent = decode(spec, payload).dense()
    wanted = slot_state.error_feedback + sent
    again = encode_step(uplink(spec), wanted)[1].dense()
    apart, length = (float(np.sum(np.square(one, dtype=np.float64))) for one in (again - sent, again))
    if _share(apart, length) > PAYLOAD_APART:
        raise ResultMismatch("payload_mismatch", "payload", "is not what compressing the unit's result gives")
    learned = wanted - decay * unit.slot_state.error_feedback
    end = unflatten(spec.model, flatten(unit.checkpoint) - learned)
    return {f"parameters.{name}": array for name, array in end.items()}
