"""The check of counts against a formula, and its power against a wrong one."""

from math import comb, sqrt

import numpy as np
import pytest

from benchmarks import verification
from benchmarks.detection import bounds
from benchmarks.detection.bounds import Comparison, joint_bounds
from benchmarks.incentives import lazy_verifiers
from benchmarks.verification import DISHONEST_PROVIDERS, FALSIFIED, RATES, SEGMENTS
from zoo_protocol.verification.sampling import detection_probability

DETECTION = [detection_probability(SEGMENTS, falsified, rate) for rate in RATES for falsified in FALSIFIED]
LAZY = [
    lazy_verifiers.chance(laziness, share, replays)
    for laziness in lazy_verifiers.Laziness
    for share in lazy_verifiers.SHARES
    for replays in lazy_verifiers.CHECKED
]


def outside(compared: list[Comparison], of: int) -> tuple[float, float]:
    joint, alone, _ = bounds.rows("x", "x", compared, of, "x")
    return joint.value, alone.value


def test_bounds_match_exact_counting() -> None:
    chances = [comb(20, count) * 0.3**count * 0.7 ** (20 - count) for count in range(21)]
    for comparisons in (1, 7):
        low, high = joint_bounds(0.3, 20, comparisons)
        for edge, of_tail in ((low, chances[: low + 1]), (high, chances[high:])):
            assert sum(of_tail) >= 0.005 / comparisons > sum(of_tail) - chances[edge]
    assert joint_bounds(1.0, 20) == (20, 20)
    assert joint_bounds(0.0, 20) == (0, 0)


@pytest.mark.parametrize("formula", [DETECTION, LAZY], ids=["detection", "lazy"])
def test_all_comparisons_hold_jointly_in_99_percent(formula: list[float]) -> None:
    """One is outside only if no other is: the worst case of dependence."""
    missed = 0.0
    for expected in formula:
        low, high = joint_bounds(expected, DISHONEST_PROVIDERS, len(formula))
        missed += 1 - float(bounds._binomial(DISHONEST_PROVIDERS, expected)[low : high + 1].sum())
    assert 0.005 < missed <= 0.01


def test_bounds_are_no_wider_than_wilson_bounds() -> None:
    for expected in DETECTION:
        low, high = joint_bounds(expected, DISHONEST_PROVIDERS, len(DETECTION))
        assert (high - low) / DISHONEST_PROVIDERS <= 2 * 2.5758 * sqrt(expected * (1 - expected) / 10_000)


@pytest.mark.long
def test_market_sampling_fits_formula_and_rejects_near_one() -> None:
    of = 1_500
    found = list(verification._found(of).values())

    def judged(factor: float) -> tuple[float, float]:
        return outside([Comparison(p * factor, count) for p, count in zip(DETECTION, found, strict=True)], of)

    assert judged(1.0)[0] == 0
    assert judged(0.97)[0] > 0
    assert judged(1 / 1.1)[0] > judged(0.97)[0]


@pytest.mark.parametrize("wrong", [0.98, 1.02])
def test_formula_off_by_2_percent_is_detected(wrong: float) -> None:
    right = [Comparison(p, round(p * DISHONEST_PROVIDERS)) for p in DETECTION]
    assert outside(right, DISHONEST_PROVIDERS) == (0, 0)
    off = [Comparison(min(1.0, p * wrong), one.found) for p, one in zip(DETECTION, right, strict=True)]
    assert outside(off, DISHONEST_PROVIDERS)[0] > 20


def test_drawing_with_replacement_would_be_found() -> None:
    """The formula 1 - (1 - c/N)^q is close to that of sampling without replacement."""
    pairs = [(falsified, rate) for rate in RATES for falsified in FALSIFIED]
    dice = np.random.default_rng(0)
    found = [int(dice.binomial(DISHONEST_PROVIDERS, 1 - (1 - c / SEGMENTS) ** q)) for c, q in pairs]
    compared = [Comparison(p, count) for p, count in zip(DETECTION, found, strict=True)]
    assert outside(compared, DISHONEST_PROVIDERS)[0] > 10
