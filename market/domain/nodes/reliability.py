"""Reliability of a node in basis points; 10,000 is best.

The formula is public (docs/provider-guide.md)::

    score  = work * uptime * slashes
    work   = (good + 16 * 0.8) / (good + refused + 2 * lost + 8 * rejected + 16)
    uptime = minutes up / minutes that counted        (1 where none did)
    slashes = 1 / (1 + number of slashes)

``good`` are verified units and, of a verifier, replays that agreed with the decision. ``refused`` are replays that it
gave back. ``lost`` are units that were not delivered, days with a late state, and replays of which nothing was heard or
that took too long. ``rejected`` are also replays in which two other verifiers overruled it, and those whose result it
committed to and never opened. The table in docs/penalties.md has them all. Every count is weighted by its age: what
happened ``a`` epochs (days) ago weighs (44/45)^a, so that half of it is forgotten in 31 days. All in integers; each
division floors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from market.domain.network import BPS

NEWCOMER_BPS = 8_000
"""Score of a node of which nothing is known: what its first 16 units count as."""


DEMOTION_BPS = 4_000
"""Below this a node gets no new work until its score recovers or it passes a benchmark anew."""


OLDEST_EPOCHS = 180
"""What is older weighs less than 2 % and is left out."""


_PRIOR_UNITS = 16


_LOST_WEIGHT = 2


_REJECTED_WEIGHT = 8


_WHOLE = 1_000_000  # weight of what happened in this epoch


@dataclass(frozen=True, slots=True)
class Evidence:
    """What happened in one epoch: units by outcome, minutes up of those that counted, slashes, right and refused
    replays."""

    verified: int = 0
    rejected: int = 0
    lost: int = 0
    up_minutes: int = 0
    counted_minutes: int = 0
    slashes: int = 0
    replays: int = 0
    refused: int = 0


@cache
def _weight(age: int) -> int:
    return int(_WHOLE * 44**age // 45**age)


def reliability_bps(history: Mapping[int, Evidence]) -> int:
    """The score, 0 to 10,000.

    Args:
        history: evidence by age in epochs, 0 for the present one.
    """
    known = [(_weight(age), found) for age, found in history.items() if 0 <= age <= OLDEST_EPOCHS]
    good = sum(weight * (found.verified + found.replays) for weight, found in known)
    bad = sum(
        weight * (found.refused + _LOST_WEIGHT * found.lost + _REJECTED_WEIGHT * found.rejected)
        for weight, found in known
    )
    prior = _PRIOR_UNITS * _WHOLE
    work = (good * BPS + prior * NEWCOMER_BPS) // (good + bad + prior)
    counted = sum(weight * found.counted_minutes for weight, found in known)
    up = sum(weight * found.up_minutes for weight, found in known)
    uptime = up * BPS // counted if counted else BPS
    slashes = sum(weight * found.slashes for weight, found in known)
    return work * uptime * _WHOLE // (BPS * (_WHOLE + slashes))
