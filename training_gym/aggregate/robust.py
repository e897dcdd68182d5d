"""Which payloads of a round count, and how much, from numbers that are small enough to gather at one place. No torch.

Four rules in turn, each over the whole vector, because rules by coordinate waste sparse payloads:

1. Norm gate: beyond ``GATE`` times the median norm is out.
2. Copies: slots train on different data, so honest payloads do not coincide. Of those whose squared distance is below
   ``COPY`` of what is usual (the median payload's median distance) only the lowest slot counts. Liars who agree on a
   payload gain one voice.
3. Multi-Krum (Blanchard et al., 2017): of n payloads, up to f = min(n * ASSUMED_BAD, (n - 3) / 2) with the widest
   neighbourhoods are out, one after another, while wider than ``OUTLIER`` times the median. A neighbourhood reaches
   to the (n - f - 2)th nearest payload; a sum over those neighbours, as in the paper, lets liars who stay near each
   other hide.
4. CenteredClip, one pass (Karimireddy et al., 2021), about the last aggregate v: what remains counts as
   v + (p - v) * min(1, t / |p - v|), where t is the median of the |p - v|.

Distances in 2 and 3 are between directions, estimated by count-sketches: lengths are for 1 and 4 to judge, and a short
vector must not pass for a near one. Everything is integer or exact, so every node that has the payloads comes to the
same decision. Statistics only exclude; whether a worker lied is for replay to say.
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
"""Verdicts after which a slot sends once more what was left out: it pointed elsewhere than the others'. Not what was
too long, since the next payload would be longer still, nor what a lower slot has sent as well."""


FACTOR_ONE = 1 << 24
"""A clip factor of 1; factors are whole multiples of 2**-24."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a slot's payload entered the mean, and if not why: ``code`` is stable, ``message`` for people."""

    included: bool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the decision needs of one payload.

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
    """What can be measured of a payload before the round's others are there: its exact squared norm and its inner
    product with the last aggregate, in units of 2**-72."""

    squared_norm: int
    product: int


def lengths(payload: Payload, last: Vector | None) -> Lengths:
    """Measure one payload (within ``exact.MAX_MAGNITUDE``) against the ``last`` aggregate [N]; None if that is zero."""
    return Lengths(squared_norm(payload), 0 if last is None else product(payload, last))


def decide(measurements: Mapping[int, Measurement]) -> Decision:
    """Apply the four rules to the measurements by slot. Their order does not matter."""
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
    """The median, of an even count the lower whole number between the middle two; 0 of none."""
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2 if ordered else 0


def _copies(slots: Sequence[int], measurements: Mapping[int, Measurement]) -> list[int]:
    """The slots that nearly coincide with a lower one that does not."""
    if len(slots) < 3:  # two payloads say nothing about what is usual
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
    """The slots whose neighbourhoods are unusually wide, the widest first."""
    bad = min(int(len(slots) * ASSUMED_BAD), (len(slots) - 3) // 2)
    if bad < 1:
        return []
    distances = _distances(slots, measurements)
    order = np.argsort(distances, axis=1)
    nearest, rank = np.take_along_axis(distances, order, axis=1), np.argsort(order, axis=1)
    # Each time one is left out and one liar fewer is expected, so that a neighbourhood keeps its size.
    reach, left, out = np.full(len(slots), len(slots) - bad - 2), np.ones(len(slots), bool), []
    for _ in range(bad):
        widths = np.where(left, np.take_along_axis(nearest, reach[:, None], axis=1)[:, 0], -1)
        widest = int(np.argmax(widths))
        if widths[widest] <= OUTLIER * median(widths[left].tolist()):
            break
        left[widest] = False
        out.append(slots[widest])
        # Who had it in the neighbourhood reaches one further, past those that are out already.
        moved = rank[:, widest] <= reach
        while moved.any():
            reach[moved] += 1
            moved &= ~left[np.take_along_axis(order, reach[:, None], axis=1)[:, 0]]
    return out


def _distances(slots: Sequence[int], measurements: Mapping[int, Measurement]) -> Fixed:
    """Squared distances [n, n] between the directions of so many slots, at least one."""
    return squared_distances(np.stack([measurements[slot].sketch for slot in slots]))
