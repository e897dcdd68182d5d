"""Comparison of counts with a formula by exact binomial bounds, alone and jointly.

A count is outside if the probability of one as extreme, on its side, is below half of the comparison's error. The error
is 1 % for a single comparison, so of many some are outside by chance. For all jointly it is 1 % divided by their number
(Bonferroni). None is then outside in at least 99 % of the runs, for any dependence between them. Wilson's bounds are
inaccurate that far out if a share is near 0 or 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Row, row

ERROR = 0.01


@dataclass(frozen=True, slots=True)
class Comparison:
    """A share by the formula, and the count of successes found."""

    expected: float
    found: int


@cache
def joint_bounds(expected: float, of: int, comparisons: int = 1) -> tuple[int, int]:
    """Return the joint bounds of a count of ``of`` draws with probability ``expected``."""
    tail = ERROR / comparisons / 2
    chances = _binomial(of, expected)
    up_to, from_on = np.cumsum(chances), np.cumsum(chances[::-1])
    return int(np.argmax(up_to >= tail)), of - int(np.argmax(from_on >= tail))


def rows(name: str, unit: str, compared: Sequence[Comparison], of: int, what: str) -> list[Row]:
    """Return rows: comparisons outside the joint and their own bounds, and the worst deviation."""
    joint = sum(_is_outside(one, of, len(compared)) for one in compared)
    alone = sum(_is_outside(one, of) for one in compared)
    by_chance = sum(_chance_outside(one.expected, of) for one in compared)
    worst = max(abs(one.found / of - one.expected) for one in compared)
    return [
        row(
            f"{name}_outside_bounds",
            unit,
            [joint],
            f"of {len(compared)} comparisons of {of} {what}; exact bounds of all comparisons together, 99 %; aim 0",
        ),
        row(
            f"{name}_outside_pointwise",
            unit,
            [alone],
            f"of the same, by exact 99 % bounds of each comparison alone; {by_chance:.2f} are expected by chance",
        ),
        row(f"{name}_worst_error", "share", [worst], "largest difference from the formula"),
    ]


def _is_outside(one: Comparison, of: int, comparisons: int = 1) -> bool:
    low, high = joint_bounds(one.expected, of, comparisons)
    return not low <= one.found <= high


def _chance_outside(expected: float, of: int) -> float:
    low, high = joint_bounds(expected, of)
    return 1 - float(_binomial(of, expected)[low : high + 1].sum())


def _binomial(of: int, chance: float) -> NDArray[np.float64]:
    counts = np.arange(of + 1)
    if chance in (0.0, 1.0):
        return np.where(counts == chance * of, 1.0, 0.0)
    logs = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])  # logarithms of the factorials
    ways = logs[of] - logs - logs[::-1]
    chances: NDArray[np.float64] = np.exp(ways + counts * math.log(chance) + counts[::-1] * math.log1p(-chance))
    return chances
