"""Public rules of verification: the sampling rate, and the verdict of replays. Pure.

The market applies them, and a receipt's verification checks that it did.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

CLEAN_UNITS_PER_HALVING = 16

COMPARABLE_SHARE = 2
"""Units count as history for a unit if they cost at least its price divided by this. Otherwise cheap units of a
provider's own job would lower the sampling rate of expensive ones."""

MIN_AGREEING_VERIFIERS = 2
"""Number of verifiers that must agree to refute a claim."""


def sampling_rate_bps(
    clean_units: int, newcomer_bps: int, floor_bps: int, *, attested: bool = False, flagged: bool = False
) -> int:
    """Return the share of a unit's segments to replay, in basis points.

    It starts at ``newcomer_bps`` and halves with every 16 verified units, down to ``floor_bps``, up to which stakes
    deter false work. An attestation halves it once more, to the same floor. After an outlier flag it is at least twice
    the newcomer's rate, independent of history and attestation.

    Args:
        clean_units: comparable verified units of the provider, over all jobs.
        attested: the provider has a valid attestation.
        flagged: one of its newest units has an outlier flag.

    Raises:
        ValueError: if ``clean_units`` is negative.
    """
    if clean_units < 0:
        raise ValueError(f"clean_units={clean_units} must not be negative")
    halvings = clean_units // CLEAN_UNITS_PER_HALVING + attested
    usual = max(floor_bps, newcomer_bps >> halvings)
    return min(10_000, max(usual, 2 * newcomer_bps)) if flagged else usual


class Verdict(StrEnum):
    """Result of the replays of one segment."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"  # one more verifier must replay


def verdict(claimed_leaf: str, results: Sequence[str], *, no_verifier_left: bool = False) -> Verdict:
    """Return the verdict on a segment from the end leaves of verifiers, in any order.

    - One match passes without a mismatch; two matches pass with one.
    - It fails if two verifiers computed the same other leaf, with a lead of two over the matches.

    So one lying verifier, or two with different wrong results, decide nothing. Two that lie alike are outvoted if two
    are honest.

    Args:
        no_verifier_left: no further verifier can replay. Then the majority decides, and a tie is for the provider.
    """
    found = Counter(results)
    for_it = found.pop(claimed_leaf, 0)
    against = max(found.values(), default=0)
    if for_it >= 2 or (for_it == 1 and (not found or (no_verifier_left and against <= 1))):
        return Verdict.PASSED
    lead = 1 if no_verifier_left else 2
    return Verdict.FAILED if against >= MIN_AGREEING_VERIFIERS and against - for_it >= lead else Verdict.OPEN
