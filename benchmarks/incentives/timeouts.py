"""Profit of late states and of refused replays (:mod:`benchmarks.incentives.strategies`)."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.incentives.strategies import (
    ESTABLISHED,
    SEGMENTS,
    UNITS,
    VERIFIERS,
    Outcome,
    Prices,
    drawn_segments,
    honest_verifier_wei,
    overruling_wei,
)
from market.domain.network import BPS, MAINNET
from market.domain.nodes.reliability import DEMOTION_BPS, NEWCOMER_BPS, Evidence, reliability_bps
from market.domain.verification.late_states import BANDWIDTH_VIOLATION, violation
from market.domain.verification.sampling import VerifierSanction


def late_outcomes(lives: int, seed: int, prices: Prices) -> Iterator[Outcome]:
    """Yield the profit of a provider that is late with every state, one unit a day."""
    dice = random.Random(seed)
    for clean, history in ((0, "newcomer"), (ESTABLISHED, "clean history")):
        lived = [late_life(prices, clean, dice) for _ in range(lives)]
        yield Outcome.of(f"late with every state, {history}, {prices.name}", lived)


def late_life(prices: Prices, clean: int, dice: random.Random) -> int:
    """Return the loss in one life until the jailing slash, in wei. First segments are public."""
    days: list[int] = []
    for day in range(UNITS):
        if any(drawn_segments(clean + day, dice.randbytes(32), dice.randbytes(32))):
            days.append(day)
        if violation(days) is not None:
            return -prices.tier.minimum_stake_wei * dict(MAINNET.penalty_bps)[BANDWIDTH_VIOLATION] // BPS
    return 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Behaviour of a verifier that refuses replays.

    Attributes:
        share: share of its assigned replays that it refuses at random.
        only_first: refuses all but first segments, which are never canaries.
        copies: answers the others with their providers' claims.
    """

    name: str
    share: float = 0.0
    only_first: bool = False
    copies: bool = False


REFUSALS = (
    Refusal("a verifier that refuses all", 1.0),
    Refusal("one that refuses a half", 0.5),
    Refusal("one that refuses a tenth", 0.1),
    Refusal("one that refuses all but first segments", only_first=True),
    Refusal("one that refuses all but first segments and copies those", only_first=True, copies=True),
)
DUPLICATE_REPLAYS = 0.095
"""Share of the replays of first segments that are duplicate replays (decision 8)."""


def refusing_outcomes(lives: int, seed: int, prices: Prices, samples: int = 1_000) -> Iterator[Outcome]:
    """Yield the profit of verifiers that refuse replays, relative to replaying all."""
    for refusal in REFUSALS:
        profits = [
            refusing_life(refusal, prices, samples, random.Random(seed + life))
            - refusing_life(Refusal("honest"), prices, samples, random.Random(seed + life))
            for life in range(lives)
        ]
        yield Outcome.of(f"{refusal.name}, {samples} samples, {prices.name}", profits)


def refusing_life(refusal: Refusal, prices: Prices, samples: int, dice: random.Random) -> int:
    """Return its earnings in wei next to honest verifiers with a newcomer's score."""
    earned = replays = refused = 0
    for _ in range(samples):
        score = reliability_bps({0: Evidence(replays=replays, refused=refused)})
        chance = score / (score + (VERIFIERS - 1) * NEWCOMER_BPS) if score >= DEMOTION_BPS else 0
        is_drawn, is_first, luck = dice.random() < chance, dice.randrange(SEGMENTS) == 0, dice.random()
        if not is_drawn:
            continue
        if luck < refusal.share or (refusal.only_first and not is_first):
            refused += 1
        elif refusal.copies and luck < DUPLICATE_REPLAYS:
            return earned - overruling_wei(VerifierSanction.SLASHED, prices)
        else:
            replays += 1
            earned += prices.replay_wei if refusal.copies else honest_verifier_wei(prices)
    return earned
