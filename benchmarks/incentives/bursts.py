"""Profit of bursts: many false units delivered before the first of them is refuted.

Added to the assumptions of :mod:`benchmarks.incentives.strategies`, in favour of the dishonest:

- Nothing is computed, so the whole pay is profit.
- An unsampled unit is verified at once, leaves room for the next one, and its pay is claimed before any verdict.
- Verdicts on sampled units come after the last unit that the market offers.
"""

import random
from collections.abc import Iterator

from benchmarks.incentives.strategies import (
    ESTABLISHED,
    SEGMENTS,
    VERIFIERS,
    Bench,
    Outcome,
    Prices,
    drawn_segments,
    is_refuted,
)
from market.domain.money import may_start_unit
from market.domain.network import MAINNET

IN_FLIGHT = (1, 4, 20, 100, 400)


def outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Yield the profit of bursts of each size, by history and number of accomplices.

    Small bursts have more lives, as many units as the largest. Each unit of a newcomer is sampled.
    """
    dice = random.Random(seed)
    for clean in (ESTABLISHED // 2, ESTABLISHED):
        for accomplices in (0, VERIFIERS // 4):
            for units in IN_FLIGHT:
                who = f"{units} units after {clean} clean ones, {accomplices} of {VERIFIERS} verifiers bought"
                times = lives * IN_FLIGHT[-1] // units
                profits = [burst(prices, units, clean, accomplices, dice) for _ in range(times)]
                yield Outcome.of(f"{who}, {prices.name}", profits)


def burst(prices: Prices, units: int, clean: int, accomplices: int, dice: random.Random) -> int:
    """Return the profit of one burst of at most ``units`` false units, wei."""
    penalty, floor = prices.tier.min_fraud_penalty_wei, MAINNET.sampling_floor_bps
    bench, profit = Bench(prices, accomplices), 0
    undecided: list[tuple[bytes, bytes, list[int]]] = []
    for _ in range(units):
        if not may_start_unit(len(undecided) * prices.gross_wei, prices.gross_wei, penalty, SEGMENTS, floor):
            break
        seed, root = dice.randbytes(32), dice.randbytes(32)
        drawn = drawn_segments(clean, seed, root)
        if drawn:
            undecided.append((seed, root, drawn))
        else:
            profit += prices.net_wei
    for seed, root, drawn in undecided:
        if any(is_refuted(bench, seed, root, segment) for segment in drawn):
            return profit + bench.earned - penalty
        profit += prices.net_wei
    return profit + bench.earned
