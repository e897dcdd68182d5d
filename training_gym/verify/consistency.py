"""Outlier statistics of the payloads of a round. No torch.

Four statistics compare each payload with the others of its round. None proves false work, since nodes differ in data,
links and lateness. An outlier flag therefore only raises the sampling rate of the node's segments. ``robust`` decides
exclusions exactly and recomputably, and only a replay proves false work. The thresholds come from honest,
heterogeneous nodes (``benchmarks.detection.consistency``).
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from training_gym.compress.payload_format import Payload
from training_gym.model.tensors import Vector, unflatten
from training_gym.spec.config import TrainingSpec

MIN_PAYLOADS = 4
"""With fewer payloads the usual values are unknown."""
NORM = 4.0
COSINE = -0.15
OVERLAP_LOW, OVERLAP_HIGH = 0.6, 0.75
"""Honest nodes read disjoint samples: 0.80 to 2.8 times chance, at most 0.40 copied (seeds 0 and 1, 8 rounds).

Random places have 0.94 to 1.04 times chance, so this statistic does not notice them.
"""
SPECTRUM = 0.9
_POWER_ITERATIONS = 12


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one payload.

    Attributes:
        norm: length, as a multiple of the round's median.
        cosine: cosine to the mean of the other payloads' directions.
        overlap: positions that others sent too, relative to chance; ``OVERLAP_LOW`` if all are sent.
        copied: largest share of positions that another payload of equal size sent too; 0 if all are sent.
        spectrum: largest share of a matrix's energy in one direction, over matrices with a tenth of the energy.
    """

    norm: float
    cosine: float
    overlap: float
    copied: float
    spectrum: float


def measure(spec: TrainingSpec, payloads: Mapping[int, Payload]) -> dict[int, Statistics]:
    """Return the statistics of a round's payloads by slot; none for fewer than ``MIN_PAYLOADS``."""
    if len(payloads) < MIN_PAYLOADS:
        return {}
    dense = {slot: payload.dense() for slot, payload in payloads.items()}
    lengths = {slot: float(np.linalg.norm(vector)) for slot, vector in dense.items()}
    usual = statistics.median(lengths.values()) or 1.0
    total = sum((dense[slot] / (lengths[slot] or 1.0) for slot in dense), np.zeros_like(next(iter(dense.values()))))
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
        )
    return found


def outlier_flags(found: Statistics) -> list[str]:
    """Return the outlier flags of a payload as stable codes; empty for nearly all honest ones."""
    unusual = {
        "norm": not 1 / NORM <= found.norm <= NORM,
        "cosine": found.cosine < COSINE,
        "index_overlap": found.overlap < OVERLAP_LOW or found.copied > OVERLAP_HIGH,
        "spectrum": found.spectrum > SPECTRUM,
    }
    return [code for code, is_unusual in unusual.items() if is_unusual]


def _cosine(left: Vector, right: Vector) -> float:
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / length if length else 0.0


def _overlaps(slot: int, payloads: Mapping[int, Payload]) -> tuple[float, float]:
    """Return a payload's position overlap over chance, and the largest of equal size."""
    own, own_places = payloads[slot], payloads[slot].indices
    lifts, copied = [], 0.0
    for other, payload in payloads.items():
        if other != slot and len(own.offsets) and len(payload.offsets):  # neither has sent every entry
            places = payload.indices
            share = len(np.intersect1d(own_places, places, assume_unique=True)) / len(own_places)
            lifts.append(share * own.size / len(places))
            if len(places) == len(own_places):  # a shorter payload has the largest entries, which many send
                copied = max(copied, share)
    return statistics.median(lifts) if lifts else OVERLAP_LOW, copied


def _matrices(spec: TrainingSpec, vector: Vector) -> list[Vector]:
    least = 0.1 * float(vector @ vector)
    matrices = [part for part in unflatten(spec, vector).values() if part.ndim == 2]
    return [matrix for matrix in matrices if least and float(np.vdot(matrix, matrix)) >= least]


def _one_direction(matrix: Vector) -> float:
    """Return the largest squared singular value as a share of their sum, by power iteration."""
    wide = matrix.astype(np.float64)
    random = np.random.default_rng(0)
    direction = random.standard_normal(len(wide.T))  # ones would miss what is orthogonal to them
    for _ in range(_POWER_ITERATIONS):
        direction = wide.T @ (wide @ direction)
        length = np.linalg.norm(direction)
        if not length:
            return 0.0
        direction /= length
    return float(np.sum(np.square(wide @ direction)) / np.sum(np.square(wide)))
