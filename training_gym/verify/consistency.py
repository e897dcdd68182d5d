"""Whether the payloads of a round look like honest training. No torch.

Five statistics of each payload beside the others of its round. None proves anything: nodes differ in their data, links
and lateness. So a doubt only has more of its node's segments replayed; what is left out of the aggregate is decided by
``robust``, exactly and recomputably, and only replay says who lied. The thresholds are set by what honest,
heterogeneous nodes do (``benchmarks.detection.consistency``).
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from training_gym.compress.payload_format import Payload
from training_gym.data.dataset import Tokens
from training_gym.model.layout import Arrays
from training_gym.model.tensors import Vector, unflatten
from training_gym.spec.config import TrainingSpec

LEAST_PAYLOADS = 4
"""Of fewer, nothing can be said of what is usual."""


HELD_OUT_WINDOWS = 32


NORM = 4.0


COSINE = -0.15


OVERLAP_LOW, OVERLAP_HIGH = 1.25, 0.75


SPECTRUM = 0.9


GAIN = -2.0


_POWER_ITERATIONS = 12


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one payload.

    Attributes:
        norm: its length, as a multiple of the round's median.
        cosine: to the mean of the other payloads' directions.
        overlap: how many times more of its places others sent too than by chance; ``OVERLAP_LOW`` where all are sent.
        copied: the largest share of its places that another one with as many entries sent too; 0 where all are sent.
        spectrum: largest share of a matrix's energy that lies in one direction, of those with a tenth of the payload's.
        gain: what the payload alone takes off the held-out loss, as a share of it; of a loss of zero, which text of one
            byte alone can have, nothing can be taken.
    """

    norm: float
    cosine: float
    overlap: float
    copied: float
    spectrum: float
    gain: float


def measure(
    spec: TrainingSpec, parameters: Arrays, payloads: Mapping[int, Payload], loss: Callable[[Arrays], float]
) -> dict[int, Statistics]:
    """The statistics of a round's payloads by slot; none if they are fewer than ``LEAST_PAYLOADS``.

    Args:
        parameters: of the checkpoint that the round started from.
        loss: on held-out windows that were drawn when the payloads were fixed (:func:`held_out`).
    """
    if len(payloads) < LEAST_PAYLOADS:
        return {}
    dense = {slot: payload.dense() for slot, payload in payloads.items()}
    lengths = {slot: float(np.linalg.norm(vector)) for slot, vector in dense.items()}
    usual = statistics.median(lengths.values()) or 1.0
    total = sum((dense[slot] / (lengths[slot] or 1.0) for slot in dense), np.zeros_like(next(iter(dense.values()))))
    before = loss(parameters)
    found = {}
    for slot, vector in dense.items():
        direction = vector / (lengths[slot] or 1.0)
        overlap, copied = _overlaps(slot, payloads)
        found[slot] = Statistics(
            norm=lengths[slot] / usual,
            cosine=_cosine(direction, total - direction),
            overlap=overlap,
            copied=copied,
            spectrum=max((_one_direction(matrix) for matrix in _matrices(spec, vector)), default=0.0),
            gain=_gain(before, loss(_moved(spec, parameters, vector))),
        )
    return found


def doubts(found: Statistics) -> list[str]:
    """Stable codes of what is unusual about a payload; empty for nearly all honest ones."""
    unusual = {
        "norm": not 1 / NORM <= found.norm <= NORM,
        "cosine": found.cosine < COSINE,
        "index_overlap": found.overlap < OVERLAP_LOW or found.copied > OVERLAP_HIGH,
        "spectrum": found.spectrum > SPECTRUM,
        "held_out_loss": not found.gain >= GAIN,  # also if it is no number: the payload breaks the model
    }
    return [code for code, is_unusual in unusual.items() if is_unusual]


def held_out(spec: TrainingSpec, validation: Tokens, seed: bytes) -> Tokens:
    """``HELD_OUT_WINDOWS`` windows [W, sequence_length + 1] of the validation split, drawn by ``seed``.

    The seed is of all the round's payloads (``aggregation.sketch_seed``), so nobody could train for these windows.
    """
    length = spec.model.sequence_length
    dice = np.random.default_rng(int.from_bytes(seed, "big"))
    starts = dice.integers(0, len(validation) - length, HELD_OUT_WINDOWS)
    return np.stack([validation[start : start + length + 1] for start in starts])


def _gain(before: float, after: float) -> float:
    if before:
        return 1 - after / before
    return 0.0 if after == 0 else -math.inf


def _moved(spec: TrainingSpec, parameters: Arrays, vector: Vector) -> Arrays:
    return {name: parameters[name] - part for name, part in unflatten(spec.model, vector).items()}


def _cosine(left: Vector, right: Vector) -> float:
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / length if length else 0.0


def _overlaps(slot: int, payloads: Mapping[int, Payload]) -> tuple[float, float]:
    """How many times more of a payload's places coincide than by chance, and the most that do with one of its size."""
    own, own_places = payloads[slot], payloads[slot].indices
    lifts, copied = [], 0.0
    for other, payload in payloads.items():
        if other != slot and len(own.offsets) and len(payload.offsets):  # neither has sent every entry
            places = payload.indices
            share = len(np.intersect1d(own_places, places, assume_unique=True)) / len(own_places)
            lifts.append(share * own.size / len(places))
            if len(places) == len(own_places):  # who sends fewer sends the largest, which many send
                copied = max(copied, share)
    return statistics.median(lifts) if lifts else OVERLAP_LOW, copied


def _matrices(spec: TrainingSpec, vector: Vector) -> list[Vector]:
    """Those that hold a tenth of the payload's energy: in another, the few entries that are sent often lie in one
    direction.
    """
    least = 0.1 * float(vector @ vector)
    matrices = [part for part in unflatten(spec.model, vector).values() if part.ndim == 2]
    return [matrix for matrix in matrices if least and float(np.vdot(matrix, matrix)) >= least]


def _one_direction(matrix: Vector) -> float:
    """The largest squared singular value as a share of their sum, by power iteration."""
    wide = matrix.astype(np.float64)
    dice = np.random.default_rng(0)
    direction = dice.standard_normal(len(wide.T))  # ones would miss what is orthogonal to them
    for _ in range(_POWER_ITERATIONS):
        direction = wide.T @ (wide @ direction)
        length = np.linalg.norm(direction)
        if not length:
            return 0.0
        direction /= length
    return float(np.sum(np.square(wide @ direction)) / np.sum(np.square(wide)))
