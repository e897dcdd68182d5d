"""Rules of verification: sampling rate, verdict of replays, sanctions of verifiers. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from market.domain.lifecycle import NODE_SILENT, REPLAY_OVERDUE

CLEAN_UNITS_PER_HALVING = 16

FLAGGED_UNITS = 16
"""Number of a provider's newest units in which one outlier flag raises the sampling rate."""

COMPARABLE_SHARE = 2
"""Units count as history for a unit if they cost at least its price divided by this. Otherwise cheap units of a
provider's own job would lower the sampling rate of expensive ones."""


# Rows of the staking contract's penalty table.
OFFENCE_IDS = {
    "downtime": 1,
    "incorrect_computation": 2,
    "bandwidth_violation": 3,
    "withheld_data": 4,
    "wrong_replay": 5,
    "contradicting_verdicts": 6,
    "refused_data": 7,
}

STAKE_COVER = 125
"""Required ratio of a verifier's stake to the gross price of a segment: 100 times its pay."""

WARNING = timedelta(days=180)
"""Time after a suspension in which another outvoted result is slashed."""

DIVERGED = "diverged"
"""Result of a replay with a non-finite loss. It differs from every leaf (0x hex), so no provider can claim it."""

WRONG_START = "start_state_mismatch"
"""Result of a replay of the first segment whose start state differs from the first leaf."""

MIN_AGREEING_VERIFIERS = 2
"""Number of verifiers that must agree to refute a claim."""


def is_finding(reason: str | None, segment: int) -> bool:
    """Return True if a replay that failed for ``reason`` counts as a result.

    The start of the first segment follows from public files. The market has compared later start states with their
    leaves, so a verifier that reports a mismatch there is wrong.
    """
    return reason == DIVERGED or (reason == WRONG_START and segment == 0)


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
        flagged: one of its newest ``FLAGGED_UNITS`` has an outlier flag.

    Raises:
        ValueError: if ``clean_units`` is negative.
    """
    if clean_units < 0:
        raise ValueError(f"clean_units={clean_units} must not be negative")
    halvings = clean_units // CLEAN_UNITS_PER_HALVING + attested
    usual = max(floor_bps, newcomer_bps >> halvings)
    return min(10_000, max(usual, 2 * newcomer_bps)) if flagged else usual


def can_verify(verifier: str, verifier_class: str | None, own: Collection[str], unit_class: str) -> bool:
    """Return True if a verifier may replay a unit: same environment class, and not a party.

    Args:
        own: addresses of the unit's provider and payer, and of their owners' other nodes.
        verifier_class, unit_class: environment classes; None is an unknown one.
    """
    return verifier_class == unit_class and verifier not in own


def stake_covers_segment(stake_wei: int, segment_wei: int) -> bool:
    """Return True if a verifier's stake is large enough for a segment of this gross price.

    Then the stake rewards lost by a suspension exceed the pay for a wrong result that others support.
    """
    return stake_wei >= STAKE_COVER * segment_wei


class Fault(StrEnum):
    """Kinds of a missing result; :mod:`market.domain.nodes.reliability` has their weights."""

    REFUSED = "refused"  # declined; another verifier gets the replay at once
    SILENT = "silent"  # timeout of its lease or of the replay
    WITHHELD = "withheld"  # committed to a result and did not reveal it


RESULT_WITHHELD = "result_withheld"
"""Reason of a replay whose committed result was never revealed."""


def fault_of(reason: str | None, *, gave_up: bool, committed: bool) -> Fault | None:
    """Return the fault of a verifier whose replay ended without a result, or None.

    Args:
        reason: reason of the lease's end.
        gave_up: the verifier ended the lease, by a code that is not a finding.
        committed: it had committed to a result.
    """
    if not gave_up and reason not in (NODE_SILENT, REPLAY_OVERDUE):
        return None  # the market ended the lease: the verifier is jailed, the unit decided, or the job ended
    if committed:
        return Fault.WITHHELD
    return Fault.REFUSED if gave_up else Fault.SILENT


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


def outvoted(results: Sequence[str]) -> set[str]:
    """Return the leaves with fewer verifiers than another one that at least two computed."""
    found = Counter(results)
    most = max(found.values(), default=0)
    return {leaf for leaf, count in found.items() if most >= 2 and count < most}


class VerifierSanction(StrEnum):
    """Sanction of an outvoted verifier."""

    SUSPENDED = "suspended"  # first offence: no replays for a while; it should probe its environment again
    SAME_CASE = "same_case"  # the replay was assigned before the suspension
    SLASHED = "wrong_replay"  # row of the penalty table


def sanction_for(
    assigned_at: datetime, warned_at: datetime | None, now: datetime, *, copied: bool = False
) -> VerifierSanction:
    """Return the sanction for a verifier whose result :func:`outvoted` names.

    The first offence is a suspension without a slash, because an honest machine's environment can change. Replays
    assigned before it do not count. A second offence within ``WARNING`` is slashed. So is copying, because no
    environment explains it.

    Args:
        assigned_at: time of the replay's assignment.
        warned_at: time of the last suspension, if any.
        copied: the verifier returned a canary's claimed end, or a first segment's end with a wrong inner digest
            (:func:`market.domain.verification.canaries.agreed_digest`).
    """
    if copied:
        return VerifierSanction.SLASHED
    if warned_at is None or now - warned_at > WARNING:
        return VerifierSanction.SUSPENDED
    return VerifierSanction.SLASHED if assigned_at > warned_at else VerifierSanction.SAME_CASE
