"""Reliability score of a node in basis points, 10,000 at best (docs/provider-guide.md).

- ``score = work * uptime * slashes``
- ``work = (good + 16 * 0.8) / (good + refused + 2 * lost + 8 * rejected + 16)``
- ``uptime = minutes up / minutes that counted``; 1 if none counted
- ``slashes = 1 / (1 + number of slashes)``

docs/penalties.md lists the events behind each count:

- ``good``: verified units, and replays that agreed with the decision.
- ``refused``: replays that the verifier declined.
- ``lost``: undelivered units, days with a late state, and replays that timed out.
- ``rejected``: rejected units, outvoted replays, and replays whose committed result was never revealed.

A count of ``a`` epochs (days) ago weighs (44/45)^a: half of it after 31 days. All integers; each division floors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from market.domain.network import BPS

NEWCOMER_BPS = 8_000
"""Score of a node without history; it counts like 16 units."""

DEMOTION_BPS = 4_000
"""Below this score a node gets no new work until the score recovers or it passes a benchmark."""

OLDEST_EPOCHS = 180
"""Older events weigh less than 2 % and do not count."""

_PRIOR_UNITS = 16
_LOST_WEIGHT = 2
_REJECTED_WEIGHT = 8
_WHOLE = 1_000_000  # weight of an event in this epoch


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counts of one epoch. ``replays`` agreed with the decision."""

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


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Factors of a score in basis points, and the weighted counts behind ``work_bps``."""

    work_bps: int
    uptime_bps: int
    slashes_bps: int
    score_bps: int
    good: int
    bad: int


def score_parts(history: Mapping[int, Evidence]) -> ScoreParts:
    """Return the score of a history with its factors. The history is by age in epochs.

    The factors are rounded down each; the score is exact.
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
    return ScoreParts(
        work_bps=work,
        uptime_bps=uptime,
        slashes_bps=BPS * _WHOLE // (_WHOLE + slashes),
        score_bps=work * uptime * _WHOLE // (BPS * (_WHOLE + slashes)),
        good=good // _WHOLE,
        bad=bad // _WHOLE,
    )


def reliability_bps(history: Mapping[int, Evidence]) -> int:
    """Return the score of a history, which is by age in epochs."""
    return score_parts(history).score_bps
