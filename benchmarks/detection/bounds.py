"""Whether counts follow a formula, by exact binomial bounds: of one comparison, and of many together.

A count is outside if one as far out or farther, on its side, has less than half of the error that its comparison may
have. That error is 1 % where a comparison stands alone, so of many some are outside by chance. For all of them together
it is 1 % divided by their number (Bonferroni): then none is outside in 99 % of the runs at least, however the
comparisons depend on each other. Wilson's bounds would not do: so far out they are off where a share is near 0 or 1.
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
    """A share by the formula, and how many of the lots were counted."""

    expected: float
    found: int


@cache
def accepted(expected: float, of: int, comparisons: int = 1) -> tuple[int, int]:
    """The least and the greatest count of so many lots that is inside, if each counts with chance ``expected``.

    Args:
        comparisons: those that are to be inside together.
    """
    tail = ERROR / comparisons / 2
    chances = _binomial(of, expected)
    up_to, from_on = np.cumsum(chances), np.cumsum(chances[::-1])
    return int(np.argmax(up_to >= tail)), of - int(np.argmax(from_on >= tail))


def rows(name: str, unit: str, compared: Sequence[Comparison], of: int, what: str) -> list[Row]:
    """How many comparisons of ``of`` lots each are outside the bounds of all together, and outside those of each alone,
    and by how much the worst share is off."""
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
    low, high = accepted(one.expected, of, comparisons)
    return not low <= one.found <= high


def _chance_outside(expected: float, of: int) -> float:
    low, high = accepted(expected, of)
    return 1 - float(_binomial(of, expected)[low : high + 1].sum())


def _binomial(of: int, chance: float) -> NDArray[np.float64]:
    """The chance of each count from 0 to ``of``."""
    counts = np.arange(of + 1)
    if chance in (0.0, 1.0):
        return np.where(counts == chance * of, 1.0, 0.0)
    logs = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])  # of the factorials
    ways = logs[of] - logs - logs[::-1]
    chances: NDArray[np.float64] = np.exp(ways + counts * math.log(chance) + counts[::-1] * math.log1p(-chance))
    return chances
