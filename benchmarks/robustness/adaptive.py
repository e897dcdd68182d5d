"""Attack that knows the rules: the most harmful payloads that aggregation accepts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training_gym.aggregate.aggregation import DecodedPayload, admit, measure_payloads
from training_gym.aggregate.outer_step import OuterState
from training_gym.aggregate.robust import FACTOR_ONE, WEIGHT_ONE, Measurement, decide
from training_gym.compress.payload_format import encode
from training_gym.spec.config import TrainingSpec

Wide = NDArray[np.float64]
COVERS = ("noise", "last", "honest", "framed")
"""Directions that hide the harm: own noise, the last aggregate, honest payloads, and the opposite of some of these.

Framed payloads shall count as opposed, so that the rules exclude them.
"""
_FRAMED = 2
"""Honest payloads whose opposite the attackers send, with a share of the last aggregate for the sign against it."""
_FRAMED_LAST = 0.3
LENGTHS = (1.0, 3.9)
"""In lengths of the median honest payload; the norm gate is at 4."""
_HALVINGS = 4
_SEEDS = (b"a", b"b", b"c")
"""Of the sketches of trials. Attackers cannot know that of the round, which depends on all payloads."""


@dataclass(frozen=True, slots=True)
class _Round:
    spec: TrainingSpec
    honest: list[dict[int, Measurement]]  # by seed
    vectors: Wide  # of the honest payloads, in their order
    last: NDArray[np.float32]
    slots: Sequence[int]


def adaptive(
    spec: TrainingSpec, honest: Mapping[int, bytes], slots: Sequence[int], state: OuterState, noise: np.random.Generator
) -> dict[int, bytes]:
    """Return the attackers' payloads: the most harmful found of those that are all accepted.

    For each cover and length, the angle to the flipped honest mean is bisected. Harm is the loss of the aggregate's
    product with the honest mean. Without an accepted trial the attackers send noise, each its own.
    """
    taken = admit(spec, honest, state.aggregate)
    vectors = np.stack([_dense(item) for item in taken.values()])
    measured = [_measured(taken, state.aggregate, seed) for seed in _SEEDS]
    round_ = _Round(spec, measured, vectors, state.aggregate, slots)
    best, most = _encoded(round_, list(_points(round_, "noise", np.pi / 2, 1.0, noise))), -np.inf
    for cover in COVERS:
        drawn = noise.integers(1 << 62)
        for length in LENGTHS:
            accepted, refused = np.pi, 0.0  # angles from the flipped mean
            for _ in range(_HALVINGS):
                angle = (accepted + refused) / 2
                tried = _encoded(round_, list(_points(round_, cover, angle, length, np.random.default_rng(drawn))))
                harm = _harm(round_, tried)
                if harm is None:
                    refused = angle
                else:
                    accepted = angle
                    if harm > most:
                        best, most = tried, harm
    return best


def _points(round_: _Round, cover: str, angle: float, length: float, noise: np.random.Generator) -> Iterator[Wide]:
    flipped = _unit(-round_.vectors.mean(axis=0))
    size = length * float(np.median(np.linalg.norm(round_.vectors, axis=1)))
    last = round_.last.astype(np.float64)
    framed = -round_.vectors[:_FRAMED].sum(axis=0) + _FRAMED_LAST * np.linalg.norm(round_.vectors[0]) * _unit(last)
    for number in range(len(round_.slots)):
        own = noise.standard_normal(len(flipped))
        honest = round_.vectors[number % len(round_.vectors)]
        base = {"noise": own, "last": last, "honest": honest, "framed": framed}[cover]
        hidden = _unit(_across(base, flipped)) + _unit(_across(own, flipped))  # apart enough to be no copies
        yield size * (np.cos(angle) * flipped + np.sin(angle) * _unit(hidden))


def _harm(round_: _Round, payloads: Mapping[int, bytes]) -> float | None:
    """Return the loss along the honest mean, in its square; None if one is refused."""
    taken = admit(round_.spec, payloads, round_.last)
    for seed, measured in zip(_SEEDS, round_.honest, strict=True):
        decision = decide(measured | _measured(taken, round_.last, seed))
        if not all(decision.verdicts[slot].included for slot in round_.slots):
            return None
    vectors = dict(zip(measured, round_.vectors, strict=True)) | {slot: _dense(taken[slot]) for slot in taken}
    honest, last = round_.vectors.mean(axis=0), round_.last.astype(np.float64)
    products = {slot: float(vectors[slot] @ honest) for slot in decision.factors}
    pulled = float(last @ honest)
    clipped = [pulled + (products[slot] - pulled) * (factor / FACTOR_ONE) for slot, factor in decision.factors.items()]
    return -sum(clipped) / len(clipped) / float(honest @ honest)


def _measured(taken: Mapping[int, DecodedPayload], last: NDArray[np.float32], seed: bytes) -> dict[int, Measurement]:
    return measure_payloads(taken, dict.fromkeys(taken, WEIGHT_ONE), last, seed)


def _encoded(round_: _Round, points: Sequence[Wide]) -> dict[int, bytes]:
    return {
        slot: encode(round_.spec, point.astype(np.float32)) for slot, point in zip(round_.slots, points, strict=True)
    }


def _dense(item: DecodedPayload) -> Wide:
    assert item.payload is not None  # a trial's payloads are well-formed
    return item.payload.dense().astype(np.float64)


def _across(vector: Wide, direction: Wide) -> Wide:
    result: Wide = vector - (vector @ direction) * direction
    return result


def _unit(vector: Wide) -> Wide:
    result: Wide = vector / max(float(np.linalg.norm(vector)), 1e-30)
    return result
