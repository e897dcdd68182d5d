"""Aggregation of a round's payloads, with the same bits on every machine. No torch.

1. Admit each payload when it arrives: exclude malformed ones and values beyond the fixed-point range, measure the rest.
2. Once all are known, sketch each and decide from the measurements (``robust``).
3. Sum the included ones in int64 fixed point: any order and any tree of :func:`merge` give the same bits.
4. Take the mean, then the outer step (``outer_step``).

``aggregate`` does all steps in one place. In a tree (``tree``), leaves do step 1 and the measurements. From all
measurements they then decide and compute a :func:`sum_included`; the root does :func:`merge` and
:func:`finish_aggregation`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from training_gym.aggregate.fixed_point import FRACTION_BITS, Fixed, dot, sketches, units_of
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, outer_step
from training_gym.aggregate.robust import FACTOR_ONE, WEIGHT_ONE, Lengths, Measurement, Verdict, decide, lengths
from training_gym.compress.codes import Units
from training_gym.compress.link_adaptation import decode_adapted
from training_gym.compress.payload_format import MAX_MAGNITUDE, Payload, decoded_bytes, uplink
from training_gym.model.layout import Arrays
from training_gym.model.tensors import Vector
from training_gym.runtime.compiled import compiled
from training_gym.runtime.threads import THREADS, map_in_threads, parts, spans
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import PayloadError
from zoo_protocol.hashing import sha256

MAX_PAYLOADS = 1 << 12
MAX_DECODED_BYTES = 1 << 28
"""Decoded payloads in memory at once, but always a batch of ``MIN_BATCH``. Batches are decoded twice."""
MIN_BATCH = THREADS
_UNIT = float(FACTOR_ONE * WEIGHT_ONE)


@dataclass(frozen=True, slots=True)
class DecodedPayload:
    """Payload: its SHA2-256, and its entries with lengths or the reason of its exclusion."""

    sha256: bytes
    payload: Payload | None = None
    lengths: Lengths | None = None
    refusal: Verdict | None = None


@dataclass(frozen=True, slots=True)
class PartialSum:
    """Sum over some payloads of factor * weight * payload.

    Attributes:
        total: [N] in fixed point.
        weight: sum of the weights, in units of 1 / ``WEIGHT_ONE``.
        pull: sum of weight * (1 - factor), in units of 1 / (``WEIGHT_ONE`` * ``FACTOR_ONE``): the weight of the last
            aggregate, towards which clipping pulls.
    """

    total: Fixed
    weight: int
    pull: int


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Result of a round.

    Attributes:
        parameters: after the outer step; unchanged if no slot is included.
        verdicts: one per slot, in ascending order.
        update: difference that a node applies to the earlier parameters (``outer_step.catch_up``). Empty without
            ``down_top_k``, and if nothing changed.
        outer_state: input of the next round.
    """

    parameters: Arrays
    verdicts: dict[int, Verdict]
    update: bytes
    outer_state: OuterState


def aggregate(
    spec: TrainingSpec,
    parameters: Arrays,
    payloads: Mapping[int, bytes],
    weights: Mapping[int, int] | None = None,
    outer_state: OuterState | None = None,
    *,
    in_place: bool = False,
) -> Aggregate:
    """Return the outer step over one round's ``payloads`` by slot.

    Args:
        spec: the job's specification.
        parameters: the checkpoint that the round started from.
        payloads: untrusted payload bytes by slot.
        weights: 1..``WEIGHT_ONE`` by slot (``deadlines.staleness_weight``); default ``WEIGHT_ONE`` each.
        outer_state: state after the previous round; default the initial one.
        in_place: overwrite ``outer_state``, which saves up to three copies of the model.

    Raises:
        ValueError: a weight is out of range, or there are more than ``MAX_PAYLOADS``.
    """
    state = outer_state or initial_outer_state(spec)
    if len(batches(spec, payloads)) == 1:
        taken = admit(spec, payloads, state.aggregate)
        return aggregate_decoded(spec, parameters, taken, weights, state, in_place=in_place)
    weights = _checked(weights, payloads)
    seed = sketch_seed({slot: sha256(data) for slot, data in payloads.items()})
    measurements, refused = measure(spec, payloads, weights, state.aggregate, seed)
    decision = decide(measurements)
    verdicts = decision.verdicts | refused
    return finish_aggregation(  # a variable of the sum would keep it in memory
        spec,
        parameters,
        verdicts,
        sum_included(spec, payloads, decision.factors, decision.weights),
        state,
        in_place=in_place,
    )


def aggregate_decoded(
    spec: TrainingSpec,
    parameters: Arrays,
    taken: Mapping[int, DecodedPayload],
    weights: Mapping[int, int] | None,
    state: OuterState,
    *,
    in_place: bool = False,
) -> Aggregate:
    """Return what :func:`aggregate` returns, for payloads that were admitted one by one."""
    weights = _checked(weights, taken)
    seed = sketch_seed({slot: item.sha256 for slot, item in taken.items()})
    decision = decide(measure_payloads(taken, weights, state.aggregate, seed))
    admitted = {slot: item.payload for slot, item in taken.items() if item.payload is not None}
    counted = _counted(admitted, decision.factors, decision.weights)
    mean = _mean_of(counted, state.aggregate, _room_of_mean(state, in_place)) if counted.weight else None
    return _stepped(spec, parameters, decision.verdicts | refused_verdicts(taken), mean, state, in_place=in_place)


def _checked(weights: Mapping[int, int] | None, slots: Collection[int]) -> Mapping[int, int]:
    weights = weights or dict.fromkeys(slots, WEIGHT_ONE)
    if len(slots) > MAX_PAYLOADS or any(not 1 <= weights[slot] <= WEIGHT_ONE for slot in slots):
        raise ValueError(
            f"got {len(slots)} payloads; expected at most {MAX_PAYLOADS}, with weights from 1 to {WEIGHT_ONE}"
        )
    return weights


def batches(spec: TrainingSpec, payloads: Mapping[int, bytes]) -> list[dict[int, bytes]]:
    """Return the payloads in batches to decode, at least one, of ``MAX_DECODED_BYTES`` each."""
    number, slots = payloads_per_batch(spec), list(payloads)
    return [
        {slot: payloads[slot] for slot in slots[first : first + number]}
        for first in range(0, max(1, len(slots)), number)
    ]


def payloads_per_batch(spec: TrainingSpec) -> int:
    """Return how many payloads are decoded at once."""
    return max(MIN_BATCH, MAX_DECODED_BYTES // decoded_bytes(uplink(spec)))


def measure(
    spec: TrainingSpec, payloads: Mapping[int, bytes], weights: Mapping[int, int], last: Vector, seed: bytes
) -> tuple[dict[int, Measurement], dict[int, Verdict]]:
    """Return the measurements of the admitted payloads and the verdicts of the others."""
    measurements: dict[int, Measurement] = {}
    refused: dict[int, Verdict] = {}
    for batch in batches(spec, payloads):
        taken = admit(spec, batch, last)
        measurements |= measure_payloads(taken, weights, last, seed)
        refused |= refused_verdicts(taken)
    return measurements, refused


def sum_included(
    spec: TrainingSpec, payloads: Mapping[int, bytes], factors: Mapping[int, int], weights: Mapping[int, int]
) -> PartialSum:
    """Return the sum over those ``payloads``, admitted before, that have a factor."""
    total, weight, pull = np.zeros(spec.num_parameters(), np.int64), 0, 0
    included = {slot: data for slot, data in payloads.items() if slot in factors}
    for batch in batches(spec, included):
        decoded = map_in_threads(lambda data: decode_adapted(spec, data), batch.values())
        counted = _counted(dict(zip(batch, decoded, strict=True)), factors, weights)
        _add_all(counted, total)
        weight, pull = weight + counted.weight, pull + counted.pull
    return PartialSum(total, weight, pull)


def finish_aggregation(
    spec: TrainingSpec,
    parameters: Arrays,
    verdicts: Mapping[int, Verdict],
    total: PartialSum,
    state: OuterState,
    *,
    in_place: bool = False,
) -> Aggregate:
    """Return the round's result from ``total`` over all payloads and the previous ``state``."""
    mean = finish(total, state.aggregate, _room_of_mean(state, in_place)) if total.weight else None
    del total  # two copies of the model, before the outer step makes its own
    return _stepped(spec, parameters, verdicts, mean, state, in_place=in_place)


def _room_of_mean(state: OuterState, in_place: bool) -> Vector:
    return state.aggregate if in_place else np.empty_like(state.aggregate)


def _stepped(
    spec: TrainingSpec,
    parameters: Arrays,
    verdicts: Mapping[int, Verdict],
    mean: Vector | None,
    state: OuterState,
    *,
    in_place: bool,
) -> Aggregate:
    ordered = dict(sorted(verdicts.items()))
    if mean is None:
        return Aggregate(parameters, ordered, b"", state)
    step = outer_step(spec, parameters, mean, state, in_place=in_place)
    return Aggregate(step.parameters, ordered, step.update, step.state)


def sketch_seed(digests: Mapping[int, bytes]) -> bytes:
    """Return the seed of a round's sketches, unpredictable until all its payloads are fixed."""
    return sha256(b"".join(slot.to_bytes(8, "big") + digests[slot] for slot in sorted(digests)))


def admit(spec: TrainingSpec, payloads: Mapping[int, bytes], last: Vector) -> dict[int, DecodedPayload]:
    """Return each payload decoded and measured against ``last``, or its exclusion."""
    center = last if last.any() else None
    taken = map_in_threads(lambda data: _admit(spec, data, center), payloads.values())
    return dict(zip(payloads, taken, strict=True))


def _admit(spec: TrainingSpec, data: bytes, center: Vector | None) -> DecodedPayload:
    digest = sha256(data)
    try:
        payload = decode_adapted(spec, data)
    except PayloadError as error:
        return DecodedPayload(digest, refusal=Verdict(False, f"malformed_{error.code}", error.message))
    if payload.is_out_of_range:
        return DecodedPayload(digest, refusal=Verdict(False, "out_of_range", f"a value is beyond {MAX_MAGNITUDE:g}"))
    return DecodedPayload(digest, payload, lengths(payload, center))


def refused_verdicts(taken: Mapping[int, DecodedPayload]) -> dict[int, Verdict]:
    """Return the verdicts of the payloads that were not admitted."""
    return {slot: item.refusal for slot, item in taken.items() if item.refusal is not None}


def measure_payloads(
    taken: Mapping[int, DecodedPayload], weights: Mapping[int, int], last: Vector, seed: bytes
) -> dict[int, Measurement]:
    """Return the admitted payloads' measurements against ``last``, for ``robust.decide``."""
    squared_center = dot(last, last) if last.any() else 0
    admitted = {slot: item.payload for slot, item in taken.items() if item.payload is not None}
    found = {}
    for (slot, payload), sketch in zip(admitted.items(), sketches(list(admitted.values()), seed), strict=True):
        measured = taken[slot].lengths
        assert measured is not None  # since it was admitted
        distance = measured.squared_norm - 2 * measured.product + squared_center
        found[slot] = Measurement(
            measured.squared_norm, distance, measured.product, sketch, weights[slot], payload.chunks.top_k
        )
    return found


def _add_all(counted: "_Counted", total: Fixed) -> None:
    map_in_threads(lambda part: counted.add_to(total[counted.values(part)], part), counted.blocks())


def _mean_of(counted: "_Counted", last: Vector, mean: Vector) -> Vector:
    """Return :func:`finish` of the payloads' sum, without the whole sum in memory."""

    def add(part: slice) -> None:
        span = counted.values(part)
        total = np.zeros(span.stop - span.start, np.int64)
        counted.add_to(total, part)
        _divide(total, last[span], counted.weight, counted.pull, mean[span])

    map_in_threads(add, counted.blocks())
    return mean


@dataclass(frozen=True, slots=True)
class _Counted:
    """Included payloads with their levels' shares; weight and pull as in :class:`PartialSum`."""

    shares: list[tuple[Payload, Units]]
    weight: int
    pull: int

    def blocks(self) -> list[slice]:
        """Return the vector's chunks in blocks; none without payloads."""
        return [part for payload, _ in self.shares[:1] for part in payload.chunks.cut(spans(payload.size))]

    def values(self, part: slice) -> slice:
        """Return the values of the chunks ``part``, which are those of every payload."""
        return self.shares[0][0].chunks.values(part)

    def add_to(self, total: Fixed, part: slice) -> None:
        """Add the payloads' chunks ``part`` to ``total``, their values."""
        for payload, units in self.shares:
            payload.add_to(total, part, units)


def _counted(payloads: Mapping[int, Payload], factors: Mapping[int, int], weights: Mapping[int, int]) -> _Counted:
    slots = payloads.keys() & factors.keys()
    return _Counted(
        [
            (payloads[slot], units_of(payloads[slot], factors[slot] * weights[slot] / _UNIT * 2.0**FRACTION_BITS))
            for slot in slots
        ],
        sum(weights[slot] for slot in slots),
        sum((FACTOR_ONE - factors[slot]) * weights[slot] for slot in slots),
    )


def merge(left: PartialSum, right: PartialSum) -> PartialSum:
    """Return the sum over both, which share no payload; ``left`` may be overwritten."""
    total = left.total if left.total.flags.writeable else left.total.copy()  # that of a file is not
    np.add(total, right.total, out=total)
    return PartialSum(total, left.weight + right.weight, left.pull + right.pull)


def finish(total: PartialSum, last: Vector, mean: Vector | None = None) -> Vector:
    """Return the weighted mean [N] of clipped payloads, from the whole sum and ``last``.

    It is written to ``mean``, which may be ``last``, or to a new vector.
    """
    mean = np.empty_like(last) if mean is None else mean
    map_in_threads(
        lambda part: _divide(total.total[part], last[part], total.weight, total.pull, mean[part]), parts(len(last))
    )
    return mean


def _divide(total: Fixed, last: Vector, weight: int, pull: int, mean: Vector) -> None:
    _divide_units(total, last, pull / _UNIT * 2.0**FRACTION_BITS, weight / WEIGHT_ONE * 2.0**FRACTION_BITS, mean)


@compiled
def _divide_units(total: Any, last: Any, pulled: float, divisor: float, mean: Any) -> None:
    for place in range(len(total)):
        units = total[place]
        if pulled:
            units += np.int64(np.rint(np.float64(last[place]) * pulled))
        mean[place] = np.float32(np.float64(units) / divisor)
