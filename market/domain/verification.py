"""Rules of verification: how much of a unit is checked, and when replays prove it right or wrong."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

CLEAN_UNITS_PER_HALVING = 16

# Rows of the staking contract's penalty table.
OFFENCE_IDS = {"downtime": 1, "incorrect_computation": 2, "bandwidth_violation": 3, "withheld_data": 4}

DIVERGED = "diverged"
"""Result of a replay in which the loss was no longer finite; equals no leaf (0x hex), so no provider can claim it."""

WRONG_START = "start_state_mismatch"
"""Result of a replay of the first segment whose start is not what the first leaf says; equals no leaf either."""


def is_finding(reason: str | None, segment: int) -> bool:
    """Whether a replay that a verifier gave up for ``reason`` says something about the unit, as a leaf would.

    The start of the first segment follows from public files alone. Those of later ones the market has compared with
    their leaves, so a verifier that finds them different has made a mistake.
    """
    return reason == DIVERGED or (reason == WRONG_START and segment == 0)


def sampling_rate_bps(clean_units: int, newcomer_bps: int, floor_bps: int) -> int:
    """Share of a unit's segments that is replayed, in basis points.

    Starts at ``newcomer_bps`` and halves with every 16 units of the provider that were verified, down to
    ``floor_bps``; it never reaches zero, so no history makes cheating safe.

    Args:
        clean_units: units of the provider verified so far, over all jobs.

    Raises:
        ValueError: if ``clean_units`` is negative.
    """
    if clean_units < 0:
        raise ValueError(f"clean_units={clean_units} must not be negative")
    return max(floor_bps, newcomer_bps >> (clean_units // CLEAN_UNITS_PER_HALVING))


def may_judge(verifier: str, verifier_class: str | None, provider: str, unit_class: str) -> bool:
    """Whether a verifier's replay of a unit can say anything about it.

    Bits are comparable within one environment class only: a replay in another class differs from honest work too. And
    nobody judges themselves.

    Args:
        verifier, provider: addresses.
        verifier_class, unit_class: environment classes; None is an unknown one.
    """
    return verifier_class == unit_class and verifier != provider


class Verdict(StrEnum):
    """What the replays of one segment say so far."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"  # ask one more verifier


def verdict(claimed_leaf: str, results: Sequence[str]) -> Verdict:
    """Judge one segment from the end leaves that different verifiers computed, in any order.

    The first result equal to the claimed leaf settles it for the provider; only two verifiers who independently
    computed the same other leaf settle it against it. So one lying verifier cannot get anybody slashed, and two
    whose machines are broken in different ways cannot either.
    """
    if claimed_leaf in results:
        return Verdict.PASSED
    most = max(Counter(results).values(), default=0)
    return Verdict.FAILED if most >= 2 else Verdict.OPEN
