"""Robust selection and clipping of payloads, from small measurements. No torch.

Four rules apply in turn to whole vectors, since rules by coordinate waste sparse payloads:

1. Norm gate: exclude payloads beyond ``GATE`` times the median norm.
2. Copies: replicas train on different data, so honest payloads do not coincide. If the squared distance of payloads is
   below ``COPY`` of the usual one (the median payload's median distance), only the lowest slot counts. Dishonest
   providers that agree on a payload therefore count once.
3. Multi-Krum (Blanchard et al., 2017): exclude the payload with the widest neighbourhood while that is wider than
   ``OUTLIER`` times the median. Of n payloads at most f = min(n * ASSUMED_BAD, (n - 3) / 2) are excluded. A
   neighbourhood reaches to the (n - f - 2)th nearest payload. The paper's sum over neighbours would let colluding
   payloads near each other hide.
4. CenteredClip, one pass (Karimireddy et al., 2021), about the last aggregate v. An included payload p counts as
   v + (p - v) * min(1, t / |p - v|), where t is the median of the |p - v|.

Distances in 2 and 3 are between directions, estimated by count-sketches. Rules 1 and 4 handle lengths; a short vector
must not pass for a near one. All arithmetic is integer or exact, so every node with the payloads reaches the same
decision. Statistics only exclude payloads; only a replay proves false work.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training_gym.aggregate.fixed_point import Fixed, product, squared_distances, squared_norm
from training_gym.compress.payload_format import Payload
from training_gym.model.tensors import Vector

GATE = 4
ASSUMED_BAD = 0.25
OUTLIER = 1.2
COPY = 0.5
RESTORED_FOR = ("krum_outlier",)
"""Verdicts after which a replica sends the excluded payload again through its error feedback.

Norm outliers are not restored, since the next payload would be longer still, nor copies, which a lower slot has sent.
"""
FACTOR_ONE = 1 << 24
"""A clip factor of 1; factors are multiples of 2**-24."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Inclusion of a payload in the mean: ``code`` is stable, ``message`` is for people."""

    included: bool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurements of one payload for the decision.

    Attributes:
        squared_norm: exact, in units of 2**-72.
        squared_distance: to the last aggregate, exact, in units of 2**-72.
        sketch: count-sketch [1024].
    """

    squared_norm: int
    squared_distance: int
    sketch: Fixed


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdicts of all measured slots, and the clip factor (1..``FACTOR_ONE``) of those included."""

    verdicts: dict[int, Verdict]
    factors: dict[int, int]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Measurements of a payload before the others arrive, in units of 2**-72.

    Its exact squared norm, and its inner product with the last aggregate.
    """

    squared_norm: int
    product: int


def lengths(payload: Payload, last: Vector | None) -> Lengths:
    """Measure a payload (within ``MAX_MAGNITUDE``) against ``last`` [N]; None is zero."""
    return Lengths(squared_norm(payload), 0 if last is None else product(payload, last))


def decide(measurements: Mapping[int, Measurement]) -> Decision:
    """Apply the four rules to the measurements by slot, in any order."""
    verdicts = {slot: Verdict(True, "included", "entered the mean") for slot in sorted(measurements)}
    norms = {slot: math.isqrt(measurements[slot].squared_norm) for slot in verdicts}
    limit = GATE * median(list(norms.values()))
    for slot, norm in norms.items():
        if norm > limit:
            verdicts[slot] = Verdict(False, "norm_outlier", f"norm is beyond {GATE} times the median")
    kept = [slot for slot, verdict in verdicts.items() if verdict.included]
    for slot in _copies(kept, measurements):
        verdicts[slot] = Verdict(False, "near_copy", "nearly coincides with the payload of a lower slot")
    kept = [slot for slot in kept if verdicts[slot].included]
    for slot in _far_from_the_others(kept, measurements):
        verdicts[slot] = Verdict(False, "krum_outlier", "lies far from the payloads that lie near each other")
    distances = {
        slot: math.isqrt(measurements[slot].squared_distance) for slot, verdict in verdicts.items() if verdict.included
    }
    reach = median(list(distances.values()))
    factors = {
        slot: min(FACTOR_ONE, max(1, reach * FACTOR_ONE // distance)) if distance else FACTOR_ONE
        for slot, distance in distances.items()
    }
    return Decision(verdicts, factors)


def median(numbers: Sequence[int]) -> int:
    """Return the median, rounded down between the middle two of an even count; 0 if empty."""
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2 if ordered else 0


def _copies(slots: Sequence[int], measurements: Mapping[int, Measurement]) -> list[int]:
    """Return the slots that nearly coincide with a lower slot that is not a copy itself."""
    if len(slots) < 3:  # two payloads define no usual distance
        return []
    distances = _distances(slots, measurements)
    others = (np.delete(row, place).tolist() for place, row in enumerate(distances))
    limit = COPY * median([median(row) for row in others])
    kept, copies = np.zeros(len(slots), bool), []
    for place, slot in enumerate(slots):
        kept[place] = (distances[place][kept] >= limit).all()
        if not kept[place]:
            copies.append(slot)
    return copies


def _far_from_the_others(slots: Sequence[int], measurements: Mapping[int, Measurement]) -> list[int]:
    """Return the slots whose neighbourhoods are unusually wide, the widest first."""
    bad = min(int(len(slots) * ASSUMED_BAD), (len(slots) - 3) // 2)
    if bad < 1:
        return []
    distances = _distances(slots, measurements)
    order = np.argsort(distances, axis=1)
    nearest, rank = np.take_along_axis(distances, order, axis=1), np.argsort(order, axis=1)
    # Each exclusion lowers the number of expected outliers by one, so a neighbourhood keeps its size.
    reach, left, out = np.full(len(slots), len(slots) - bad - 2), np.ones(len(slots), bool), []
    for _ in range(bad):
        widths = np.where(left, np.take_along_axis(nearest, reach[:, None], axis=1)[:, 0], -1)
        widest = int(np.argmax(widths))
        if widths[widest] <= OUTLIER * median(widths[left].tolist()):
            break
        left[widest] = False
        out.append(slots[widest])
        # A neighbourhood that contained the excluded payload grows by one, past those excluded before.
        moved = rank[:, widest] <= reach
        while moved.any():
            reach[moved] += 1
            moved &= ~left[np.take_along_axis(order, reach[:, None], axis=1)[:, 0]]
    return out


def _distances(slots: Sequence[int], measurements: Mapping[int, Measurement]) -> Fixed:
    return squared_distances(np.stack([measurements[slot].sketch for slot in slots]))
