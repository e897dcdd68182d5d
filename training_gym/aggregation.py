"""Joining the payloads of a round into the next parameters, so that anybody gets the same bits. No torch.

1. Gate: a payload that is malformed, too large for the fixed-point range, or whose norm is beyond ``GATE`` times
   the median norm is left out.
2. Clip: longer payloads are scaled down to the median norm of those let in.
3. Mean: weighted, summed in int64 fixed point, so that order does not matter.
4. Outer step: parameters - outer_learning_rate * mean.

Statistics only exclude; whether a worker lied is for replay to say. Norms are correctly rounded sums
(``math.fsum``) and every other operation is one IEEE operation per element, so no library changes the result.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from training_gym.compression.wire import Payload, decode
from training_gym.config import TrainingSpec
from training_gym.errors import PayloadError
from training_gym.models.layout import Arrays
from training_gym.tensors import flatten, unflatten

GATE = 4.0
FRACTION_BITS = 40
MAX_MAGNITUDE = 1024.0
MAX_TOTAL_WEIGHT = 4096
"""2**10 (magnitude) * 2**12 (weights) * 2**40 (fraction) stays within int64."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a slot's payload entered the mean, and if not why: ``code`` is stable, ``message`` for people."""

    included: bool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The parameters after the outer step, and one verdict per slot. Without an included slot nothing changes."""

    parameters: Arrays
    verdicts: dict[int, Verdict]


def aggregate(
    spec: TrainingSpec, parameters: Arrays, payloads: Mapping[int, bytes], weights: Mapping[int, int] | None = None
) -> Aggregate:
    """The outer step over one round's ``payloads`` by slot.

    Args:
        spec: the job's specification.
        parameters: the checkpoint that the round started from.
        payloads: payload bytes by slot, from strangers.
        weights: positive integer weight by slot; 1 each if not given.

    Raises:
        ValueError: if a weight is not positive or their sum is beyond ``MAX_TOTAL_WEIGHT``.
    """
    weights = weights or dict.fromkeys(payloads, 1)
    if any(weights[slot] < 1 for slot in payloads) or sum(weights[slot] for slot in payloads) > MAX_TOTAL_WEIGHT:
        raise ValueError(f"weights must be at least 1 and sum to at most {MAX_TOTAL_WEIGHT}")
    decoded, verdicts = _admit(spec, payloads)
    norms = {slot: _norm(payload) for slot, payload in decoded.items()}
    median = statistics.median(norms.values()) if norms else 0.0
    for slot, norm in norms.items():
        if norm > GATE * median:
            del decoded[slot]
            verdicts[slot] = Verdict(False, "norm_outlier", f"norm {norm:.6g} is beyond {GATE:g} times the median")
    vector = flatten(parameters).astype(np.float64)
    if decoded:
        limit = statistics.median(norms[slot] for slot in decoded)
        total = np.zeros(len(vector), np.int64)
        for slot, payload in sorted(decoded.items()):
            scale = min(1.0, limit / norms[slot]) if norms[slot] else 1.0
            fixed = np.rint(payload.values.astype(np.float64) * scale * 2.0**FRACTION_BITS).astype(np.int64)
            total[payload.indices] += fixed * weights[slot]
        weight = sum(weights[slot] for slot in decoded)
        vector -= spec.training.outer_learning_rate * (total.astype(np.float64) / (weight * 2.0**FRACTION_BITS))
    return Aggregate(unflatten(spec.model, vector.astype(np.float32)), dict(sorted(verdicts.items())))


def _admit(spec: TrainingSpec, payloads: Mapping[int, bytes]) -> tuple[dict[int, Payload], dict[int, Verdict]]:
    """The payloads that decode into the fixed-point range, and a verdict for every slot."""
    decoded: dict[int, Payload] = {}
    verdicts: dict[int, Verdict] = {}
    for slot, data in payloads.items():
        try:
            payload = decode(spec, data)
        except PayloadError as error:
            verdicts[slot] = Verdict(False, f"malformed_{error.code}", error.message)
            continue
        if np.abs(payload.values).max() > MAX_MAGNITUDE:
            verdicts[slot] = Verdict(False, "out_of_range", f"a value is beyond {MAX_MAGNITUDE:g}")
            continue
        decoded[slot] = payload
        verdicts[slot] = Verdict(True, "included", "entered the mean")
    return decoded, verdicts


def _norm(payload: Payload) -> float:
    return math.sqrt(math.fsum((payload.values.astype(np.float64) ** 2).tolist()))
