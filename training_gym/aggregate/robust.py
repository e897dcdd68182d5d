"""Robust selection and clipping of payloads, from small measurements. No torch.

Five rules apply in turn to whole vectors, since rules by coordinate waste sparse payloads:

1. Norm gate: exclude payloads beyond ``GATE`` times the median norm.
2. Copies: replicas train on different data, so honest payloads do not coincide. If the squared distance of payloads is
   below ``COPY`` of the usual one, only the lowest slot counts. Usual is the median distance of the median payload, of
   three at least. Distances above ``OPPOSITE`` do not count: a flipped payload would make copies of honest ones.
   Dishonest providers that agree on a payload therefore count once at each level.
3. Opposed: exclude a payload that points against the middle half of the others and against the last aggregate v, or
   clearly against the former. Distances of flipped payloads are not wider once honest ones are nearly orthogonal (a
   mean cosine below 1/11), but signs still show them. An assumed bad quarter hardly moves the middle half: neither to
   hide each other, nor to make an honest payload opposed. Fewer than half of the payloads are excluded.
4. Multi-Krum (Blanchard et al., 2017): exclude the payload with the widest neighbourhood while that is wider than
   ``OUTLIER`` times the median. Of n payloads at most f = min(n * ASSUMED_BAD, (n - 3) / 2) are excluded, together
   with rule 3. A neighbourhood reaches to the (n - f - 2)th nearest payload. The paper's sum over neighbours would let
   colluding payloads near each other hide.
5. CenteredClip, one pass (Karimireddy et al., 2021), about v. An included p counts as
   v + (p - v) * min(1, t / |p - v|). Here t is the largest |p - v| below those of the assumed bad quarter.

Late payloads started elsewhere, so the fresh ones alone define medians, usual distances, neighbourhoods, sums and t. A
late payload is opposed if it points against v, the mean of payloads with its own or a nearby start. Late payloads have
at most half of the fresh ones' weight.

Rule 2 compares payloads of one compression level only: of two levels, distances tell which entries were sent. Rule 4
compares all, so one slow node among fast ones is often an outlier. Attackers could choose a level of their own.

Distances and sums in 2 to 4 are of directions, estimated by count-sketches. Rules 1 and 5 handle lengths; a short
vector must not pass for a near one. Arithmetic is of integers, or of float64 in a fixed order, so every node with the
payloads reaches the same decision. Statistics only exclude payloads; only a replay proves false work.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training_gym.aggregate.fixed_point import (
    SKETCH_SIZE,
    Fixed,
    direction_products,
    product,
    squared_distances,
    squared_norm,
)
from training_gym.compress.payload_format import Payload
from training_gym.model.tensors import Vector

GATE = 4
ASSUMED_BAD = 0.25
OUTLIER = 1.2
COPY = 0.5
OPPOSITE = 9 << 38
"""Squared distance of directions, in 2**-40, that honest payloads do not have: a cosine below -1/8."""
COINCIDENT = 1 << 32
"""Least limit for copies, in 2**-40, beside such distances: equal payloads alone would set it to 0.

It is also that of fewer than three payloads of a level, if other levels have some.
"""
CLEAR = 3
"""Standard deviations beyond which a mean of sketched cosines is clear. That of one is 1 / sqrt(``SKETCH_SIZE``)."""
WEIGHT_ONE = 1 << 12
"""Weight of a payload of the current round; weights are multiples of 2**-12."""
MAX_LATE_SHARE = 0.5
"""Largest weight of the included late payloads, in shares of that of the fresh ones."""
RESTORED_FOR = ("krum_outlier", "opposed")
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
        product: with the last aggregate, exact, in units of 2**-72.
        sketch: count-sketch [1024].
        weight: below ``WEIGHT_ONE`` for a late payload.
        top_k: entries per chunk, its compression level.
    """

    squared_norm: int
    squared_distance: int
    product: int
    sketch: Fixed
    weight: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdicts of all measured slots, with factor (1..``FACTOR_ONE``) and weight if included."""

    verdicts: dict[int, Verdict]
    factors: dict[int, int]
    weights: dict[int, int]


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
    """Apply the five rules to the measurements by slot, in any order."""
    verdicts = {slot: Verdict(True, "included", "entered the mean") for slot in sorted(measurements)}
    fresh = [slot for slot in verdicts if measurements[slot].weight == WEIGHT_ONE] or list(verdicts)

    def exclude(slots: Sequence[int], code: str, message: str) -> None:
        verdicts.update(dict.fromkeys(slots, Verdict(False, code, message)))

    def left(slots: Sequence[int]) -> list[int]:
        return [slot for slot in slots if verdicts[slot].included]

    norms = {slot: math.isqrt(measurements[slot].squared_norm) for slot in verdicts}
    limit = GATE * median([norms[slot] for slot in fresh])
    too_long = [slot for slot, norm in norms.items() if norm > limit]
    exclude(too_long, "norm_outlier", f"norm is beyond {GATE} times the median")
    admitted = left(list(verdicts)) if len(left(fresh)) > 2 else []  # two payloads define no copies
    for level in {measurements[slot].top_k for slot in admitted}:
        alike = [slot for slot in admitted if measurements[slot].top_k == level]
        copies = _copies(alike, [slot for slot in alike if slot in fresh], measurements)
        exclude(copies, "near_copy", "nearly coincides with the payload of a lower slot")
    compared = left(fresh)
    opposed = _opposed(compared, measurements)
    late = [slot for slot in left(list(verdicts)) if slot not in fresh and measurements[slot].product < 0]
    exclude([*opposed, *late], "opposed", "points against the other payloads or the last aggregate")
    allowed = int(len(compared) * ASSUMED_BAD) - len(opposed)
    far = _far_from_the_others(left(fresh), measurements, allowed)
    exclude(far, "krum_outlier", "lies far from the payloads that lie near each other")
    included = left(list(verdicts))
    distances = {slot: math.isqrt(measurements[slot].squared_distance) for slot in included}
    reach = _reach([distances[slot] for slot in included if slot in fresh] or list(distances.values()))
    factors = {
        slot: min(FACTOR_ONE, max(1, reach * FACTOR_ONE // distance)) if distance else FACTOR_ONE
        for slot, distance in distances.items()
    }
    return Decision(verdicts, factors, _bounded({slot: measurements[slot].weight for slot in included}))


def _reach(distances: Sequence[int]) -> int:
    """Return the largest distance but for the assumed bad quarter, rounded up; 0 if empty."""
    bad = -(-len(distances) // round(1 / ASSUMED_BAD))
    return sorted(distances)[max(0, len(distances) - 1 - bad)] if distances else 0


def _bounded(weights: Mapping[int, int]) -> dict[int, int]:
    """Return the weights, those of late payloads reduced to ``MAX_LATE_SHARE`` of the others."""
    fresh = sum(weight for weight in weights.values() if weight == WEIGHT_ONE)
    late, most = sum(weights.values()) - fresh, int(fresh * MAX_LATE_SHARE)
    if not fresh or late <= most:
        return dict(weights)
    return {slot: weight if weight == WEIGHT_ONE else max(1, weight * most // late) for slot, weight in weights.items()}


def _opposed(slots: Sequence[int], measurements: Mapping[int, Measurement]) -> list[int]:
    """Return the slots that point against the others, the most opposed first."""
    if len(slots) < 3:  # of two payloads neither is the majority
        return []
    near = direction_products(np.stack([measurements[slot].sketch for slot in slots])) >> 8  # sums stay within int64
    against_last = np.array([measurements[slot].product < 0 for slot in slots])
    left, out = np.arange(len(slots)), []
    for _ in range((len(slots) - 1) // 2):
        middle, count = _middle_of_others(near[np.ix_(left, left)])
        scores, own = middle.astype(np.float64), count * np.diag(near)[left].astype(np.float64)
        is_clear = SKETCH_SIZE * (len(left) - 1) * (scores * scores) > CLEAR**2 * (own * own)
        is_opposed = (middle < 0) & (against_last[left] | is_clear)
        if not is_opposed.any():
            break
        surely = is_opposed & against_last[left]
        most = int(np.argmin(np.where(surely if surely.any() else is_opposed, middle, 0)))
        out.append(slots[left[most]])
        left = np.delete(left, most)
    return out


def _middle_of_others(products: Fixed) -> tuple[Fixed, int]:
    """Return each row's sum of the middle ``products`` [M, M] with others, and their number."""
    size, bad = len(products), int(len(products) * ASSUMED_BAD)
    others = np.sort(products[~np.eye(size, dtype=bool)].reshape(size, size - 1), axis=1)
    return others[:, bad : size - 1 - bad].sum(axis=1), size - 1 - 2 * bad


def median(numbers: Sequence[int]) -> int:
    """Return the median, rounded down between the middle two of an even count; 0 if empty."""
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2 if ordered else 0


def _copies(slots: Sequence[int], fresh: Sequence[int], measurements: Mapping[int, Measurement]) -> list[int]:
    """Return the slots that nearly coincide with a lower slot that is not a copy itself."""
    distances = _distances(slots, measurements)
    among = np.array([slots.index(slot) for slot in fresh], np.int64)
    others = (np.delete(row, place) for place, row in enumerate(distances[np.ix_(among, among)]))
    near = [row[row <= OPPOSITE].tolist() for row in others]
    limit = COPY * median([median(row) for row in near if row]) if len(fresh) > 2 else 0
    if len(fresh) < 3 or (distances > OPPOSITE).any():  # two payloads define no usual distance
        limit = max(limit, COINCIDENT)
    kept, copies = np.zeros(len(slots), bool), []
    for place, slot in enumerate(slots):
        kept[place] = (distances[place][kept] >= limit).all()
        if not kept[place]:
            copies.append(slot)
    return copies


def _far_from_the_others(slots: Sequence[int], measurements: Mapping[int, Measurement], allowed: int) -> list[int]:
    """Return at most ``allowed`` slots with unusually wide neighbourhoods, the widest first."""
    bad = min(allowed, (len(slots) - 3) // 2)
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
