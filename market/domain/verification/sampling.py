"""Rules of verification: findings, faults, sanctions of verifiers. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from market.domain.lifecycle import NODE_SILENT, REPLAY_OVERDUE

FLAGGED_UNITS = 16
"""Number of a provider's newest units in which one outlier flag raises the sampling rate."""
COMPARED_MODELS = 16
"""Evaluated models before one, of which the best is taken."""


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

JOBS_FAULT = (DIVERGED, "out_of_range", "malformed")
"""Failures that a unit's job can cause: its training diverges, or its shards have false tokens or rows."""

WRONG_START = "start_state_mismatch"
"""Result of a replay of the first segment whose start state differs from the first leaf."""


def is_finding(reason: str | None, segment: int) -> bool:
    """Return True if a replay that failed for ``reason`` counts as a result.

    The start of the first segment follows from public files. The market has compared later start states with their
    leaves, so a verifier that reports a mismatch there is wrong.
    """
    return reason == DIVERGED or (reason == WRONG_START and segment == 0)


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
