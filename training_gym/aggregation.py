"""Joining the payloads of a round into the next parameters, so that anybody gets the same bits. No torch.

1. Admit: a payload that is malformed or too large for the fixed-point range is left out.
2. Measure each payload and decide over the measurements (``robust``).
3. Sum what counts in int64 fixed point: any order, and any tree of :func:`merge`, gives the same bits.
4. Mean, then the outer step (``outer``).

``aggregate`` does all of it in one place. In a tree (``tree``), leaves do 1 and the measuring, then, from everybody's
measurements, decide and :func:`partial_sum`; the root does :func:`merge` and :func:`conclude`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from training_gym.adaptation import decode_adapted
from training_gym.compression.wire import Payload
from training_gym.config import TrainingSpec
from training_gym.errors import PayloadError
from training_gym.exact import FRACTION_BITS, MAX_MAGNITUDE, Fixed, dot, to_fixed
from training_gym.models.layout import Arrays
from training_gym.outer import OuterState, initial_outer_state, outer_step
from training_gym.robust import FACTOR_ONE, Measurement, Verdict, decide, measure
from training_gym.tensors import Vector
from zoo_protocol.hashing import sha256

__all__ = ["MAX_PAYLOADS", "WEIGHT_ONE", "Aggregate", "PartialSum", "Verdict", "aggregate"]

WEIGHT_ONE = 1 << 12
"""The weight of a payload of this round; weights are whole multiples of 2**-12."""
MAX_PAYLOADS = 1 << 12

_UNIT = float(FACTOR_ONE * WEIGHT_ONE)
_ENTRIES = 1 << 16


@dataclass(frozen=True, slots=True)
class PartialSum:
    """The sum over some payloads of factor * weight * payload.

    Attributes:
        total: [N] in fixed point.
        weight: sum of the weights, in units of 1 / ``WEIGHT_ONE``.
        pull: sum of weight * (1 - factor), in units of 1 / (``WEIGHT_ONE`` * ``FACTOR_ONE``): what the last aggregate
            counts, because clipping draws towards it.
    """

    total: Fixed
    weight: int
    pull: int


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The result of a round.

    Attributes:
        parameters: after the outer step; unchanged if no slot is included.
        verdicts: one per slot, in ascending order.
        update: what a node that has the earlier parameters fetches instead of all of them (``outer.catch_up``).
            Empty without ``down_top_k``, and where nothing changed.
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
) -> Aggregate:
    """The outer step over one round's ``payloads`` by slot.

    Args:
        spec: the job's specification.
        parameters: the checkpoint that the round started from.
        payloads: payload bytes by slot, from strangers.
        weights: 1..``WEIGHT_ONE`` by slot (``lateness.staleness_weight``); ``WEIGHT_ONE`` each if not given.
        outer_state: of the round before; the initial one if not given.

    Raises:
        ValueError: if a weight is out of its range or there are more than ``MAX_PAYLOADS``.
    """
    weights = weights or dict.fromkeys(payloads, WEIGHT_ONE)
    if len(payloads) > MAX_PAYLOADS or any(not 1 <= weights[slot] <= WEIGHT_ONE for slot in payloads):
        raise ValueError(f"takes at most {MAX_PAYLOADS} payloads with weights from 1 to {WEIGHT_ONE}")
    state = outer_state or initial_outer_state(spec)
    decoded, verdicts = admit(spec, payloads)
    seed = sketch_seed({slot: sha256(payload) for slot, payload in payloads.items()})
    decision = decide(gauge(decoded, state.aggregate, seed))
    verdicts |= decision.verdicts
    total = partial_sum(spec.num_parameters(), decoded, decision.factors, weights)
    return conclude(spec, parameters, verdicts, total, state)


def conclude(
    spec: TrainingSpec, parameters: Arrays, verdicts: Mapping[int, Verdict], total: PartialSum, state: OuterState
) -> Aggregate:
    """The round's result, from the ``total`` over all payloads; ``state`` is that of the round before."""
    ordered = dict(sorted(verdicts.items()))
    if not total.weight:
        return Aggregate(parameters, ordered, b"", state)
    step = outer_step(spec, parameters, finish(total, state.aggregate), state)
    return Aggregate(step.parameters, ordered, step.update, step.state)


def sketch_seed(digests: Mapping[int, bytes]) -> bytes:
    """The seed of a round's sketches, from the SHA2-256 of its payloads by slot: nobody knows it before every payload
    is fixed, and everybody after."""
    return sha256(b"".join(slot.to_bytes(8, "big") + digests[slot] for slot in sorted(digests)))


def admit(spec: TrainingSpec, payloads: Mapping[int, bytes]) -> tuple[dict[int, Payload], dict[int, Verdict]]:
    """The payloads that decode into the fixed-point range, and the verdicts of the others."""
    decoded: dict[int, Payload] = {}
    refused: dict[int, Verdict] = {}
    for slot, data in payloads.items():
        try:
            payload = decode_adapted(spec, data)
        except PayloadError as error:
            refused[slot] = Verdict(False, f"malformed_{error.code}", error.message)
            continue
        if np.abs(payload.values).max() > MAX_MAGNITUDE:
            refused[slot] = Verdict(False, "out_of_range", f"a value is beyond {MAX_MAGNITUDE:g}")
            continue
        decoded[slot] = payload
    return decoded, refused


def gauge(payloads: Mapping[int, Payload], last: Vector, seed: bytes) -> dict[int, Measurement]:
    """The measurements of ``payloads`` against the ``last`` aggregate, for ``robust.decide``."""
    center = to_fixed(last)
    squared_center = dot(center, center)
    return {slot: measure(payload, center, squared_center, seed) for slot, payload in payloads.items()}


def partial_sum(
    size: int, payloads: Mapping[int, Payload], factors: Mapping[int, int], weights: Mapping[int, int]
) -> PartialSum:
    """The sum over those ``payloads`` (of ``size`` values) that have a factor."""
    total, weight, pull = np.zeros(size, np.int64), 0, 0
    for slot in payloads.keys() & factors.keys():
        payload, share = payloads[slot], factors[slot] * weights[slot]
        for start in range(0, len(payload.values), _ENTRIES):  # in the processor's cache
            values = payload.values[start : start + _ENTRIES].astype(np.float64)
            scaled = values * (share / _UNIT)  # the one rounding before the fixed point's
            total[payload.indices[start : start + _ENTRIES]] += np.rint(scaled * 2.0**FRACTION_BITS).astype(np.int64)
        weight += weights[slot]
        pull += (FACTOR_ONE - factors[slot]) * weights[slot]
    return PartialSum(total, weight, pull)


def merge(left: PartialSum, right: PartialSum) -> PartialSum:
    """The sum over the payloads of both, which must be different ones."""
    return PartialSum(left.total + right.total, left.weight + right.weight, left.pull + right.pull)


def finish(total: PartialSum, last: Vector) -> Vector:
    """The weighted mean [N] of the clipped payloads, from the sum over all of them and the ``last`` aggregate."""
    pulled = np.rint(last.astype(np.float64) * (total.pull / _UNIT) * 2.0**FRACTION_BITS).astype(np.int64)
    units = (total.total + pulled).astype(np.float64)
    return (units / (total.weight / WEIGHT_ONE * 2.0**FRACTION_BITS)).astype(np.float32)
