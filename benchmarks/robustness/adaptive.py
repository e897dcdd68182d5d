"""Search of attackers that know the rules: as much of a direction as aggregation accepts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.aggregate.aggregation import DecodedPayload, admit, measure_payloads
from training_gym.aggregate.outer_step import OuterState
from training_gym.aggregate.robust import ASSUMED_BAD, FACTOR_ONE, WEIGHT_ONE, Measurement, decide
from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import encode
from training_gym.spec.config import TrainingSpec

Wide = NDArray[np.float64]
COVERS = ("noise", "last", "honest")
"""What hides a direction: own noise, the last aggregate, or honest payloads, which each attacker has others of."""
LONGEST = 3.9
"""Length in that of the median honest payload, just below the norm gate.

The clip radius shortens long payloads, unless there are enough attackers to set it.
"""
_HALVINGS = 5
_SEEDS = (b"a", b"b", b"c")
"""Of the sketches of trials. Attackers cannot know that of the round, which depends on all payloads."""


@dataclass(frozen=True, slots=True)
class _Round:
    spec: TrainingSpec
    honest: list[dict[int, Measurement]]  # by seed
    vectors: Wide  # of the honest payloads, in their order
    last: NDArray[np.float32]
    slots: Sequence[int]
    direction: Wide
    top_k: int | None


def accepted_payloads(
    spec: TrainingSpec,
    honest: Mapping[int, bytes],
    slots: Sequence[int],
    state: OuterState,
    direction: Wide,
    noise: np.random.Generator,
    top_k: int | None = None,
) -> dict[int, bytes]:
    """Return the accepted payloads that move the aggregate farthest in ``direction``.

    All of the attackers' ``slots`` are accepted. For each cover its share is bisected. Without an accepted trial the
    attackers send noise, each its own. Their payloads have ``top_k`` entries per chunk, by default the honest ones'.
    """
    taken = admit(spec, honest, state.aggregate)
    vectors = np.stack([_dense(item) for item in taken.values()])
    measured = [_measured(taken, state.aggregate, seed) for seed in _SEEDS]
    round_ = _Round(spec, measured, vectors, state.aggregate, slots, unit(direction), top_k)
    best, most = _encoded(round_, _points(round_, "noise", 1.0, noise)), -np.inf
    for cover in COVERS:
        drawn = noise.integers(1 << 62)
        accepted, refused = 1.0, 0.0  # shares of the cover
        for _ in range(_HALVINGS):
            share = (accepted + refused) / 2
            tried = _encoded(round_, _points(round_, cover, share, np.random.default_rng(drawn)))
            moved = _moved(round_, tried)
            if moved is None:
                refused = share
            else:
                accepted = share
                if moved > most:
                    best, most = tried, moved
    return best


def longest(honest: Wide, bad: int) -> float:
    """Return the length of the payloads of ``bad`` attackers, given the ``honest`` ones."""
    too_many = bad > ASSUMED_BAD * (bad + len(honest))
    return (LONGEST if too_many else 1.0) * float(np.median(np.linalg.norm(honest, axis=1)))


def _points(round_: _Round, cover: str, share: float, noise: np.random.Generator) -> Iterator[Wide]:
    size = longest(round_.vectors, len(round_.slots))
    for number in range(len(round_.slots)):
        drawn = unit(noise.standard_normal(len(round_.direction)))
        honest = round_.vectors[number :: len(round_.slots)].mean(axis=0)
        hidden = {"noise": drawn, "last": unit(round_.last) + drawn, "honest": honest}[cover]
        yield size * unit((1 - share) * round_.direction + share * unit(hidden))


def _moved(round_: _Round, payloads: Mapping[int, bytes]) -> float | None:
    """Return the aggregate's product with the direction; None if a payload is refused."""
    taken = admit(round_.spec, payloads, round_.last)
    for seed, measured in zip(_SEEDS, round_.honest, strict=True):
        decision = decide(measured | _measured(taken, round_.last, seed))
        if not all(decision.verdicts[slot].included for slot in round_.slots):
            return None
    products = dict(zip(measured, round_.vectors @ round_.direction, strict=True))
    products |= {slot: float(_dense(item) @ round_.direction) for slot, item in taken.items()}
    pulled = float(round_.last @ round_.direction)
    clipped = [pulled + (products[slot] - pulled) * (factor / FACTOR_ONE) for slot, factor in decision.factors.items()]
    return float(sum(clipped)) / len(clipped)


def _measured(taken: Mapping[int, DecodedPayload], last: NDArray[np.float32], seed: bytes) -> dict[int, Measurement]:
    return measure_payloads(taken, dict.fromkeys(taken, WEIGHT_ONE), last, seed)


def _encoded(round_: _Round, points: Iterable[Wide]) -> dict[int, bytes]:
    spec = with_top_k(round_.spec, round_.top_k)
    return {slot: encode(spec, point.astype(np.float32)) for slot, point in zip(round_.slots, points, strict=True)}


def _dense(item: DecodedPayload) -> Wide:
    assert item.payload is not None  # a trial's payloads are well-formed
    return item.payload.dense().astype(np.float64)


def unit(vector: NDArray[np.floating[Any]]) -> Wide:
    """Return the vector of length one in the same direction, or zeros."""
    return (vector / max(float(np.linalg.norm(vector)), 1e-30)).astype(np.float64)
