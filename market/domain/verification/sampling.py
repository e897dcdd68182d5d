"""Rules of verification: how much of a unit is checked, and when replays prove it right or wrong."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from market.domain.lifecycle import NODE_SILENT, REPLAY_OVERDUE

CLEAN_UNITS_PER_HALVING = 16


DOUBTED_UNITS = 16
"""Among so many of a provider's newest units one doubt counts."""


COMPARABLE_SHARE = 2
"""A provider's other units tell how it treats one if they cost at least the unit's price divided by this: a history of
units that cost next to nothing, of a job of one's own, must not make dear ones seldom drawn."""


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
"""How many times the gross price of a segment a verifier should have at stake: 100 times what it is paid."""


WARNING = timedelta(days=180)
"""How long a verifier's first wrong result is remembered."""


DIVERGED = "diverged"
"""Result of a replay in which the loss was no longer finite; equals no leaf (0x hex), so no provider can claim it."""


WRONG_START = "start_state_mismatch"
"""Result of a replay of the first segment whose start is not what the first leaf says; equals no leaf either."""


MIN_AGREEING_VERIFIERS = 2
"""Verifiers who must agree before a claim is refuted."""


def is_finding(reason: str | None, segment: int) -> bool:
    """Whether a replay that a verifier gave up for ``reason`` says something about the unit, as a leaf would.

    The start of the first segment follows from public files alone. Those of later ones the market has compared with
    their leaves, so a verifier that finds them different has made a mistake.
    """
    return reason == DIVERGED or (reason == WRONG_START and segment == 0)


def sampling_rate_bps(
    clean_units: int, newcomer_bps: int, floor_bps: int, *, attested: bool = False, doubted: bool = False
) -> int:
    """Share of a unit's segments that is replayed, in basis points.

    Starts at ``newcomer_bps`` and halves with every 16 units of the provider that were verified, down to
    ``floor_bps``; it never reaches zero, so no history makes cheating safe. An attestation halves it once more, down
    to the same floor: that is what stakes cover. Of a doubted provider it is twice a newcomer's, whatever its history
    and wherever its key lives.

    Args:
        clean_units: comparable units of the provider verified so far, over all jobs.
        attested: its key lives in an environment whose software the network accepted.
        doubted: one of its newest ``DOUBTED_UNITS`` was unusual beside the others of its round.

    Raises:
        ValueError: if ``clean_units`` is negative.
    """
    if clean_units < 0:
        raise ValueError(f"clean_units={clean_units} must not be negative")
    halvings = clean_units // CLEAN_UNITS_PER_HALVING + attested
    usual = max(floor_bps, newcomer_bps >> halvings)
    return min(10_000, max(usual, 2 * newcomer_bps)) if doubted else usual


def can_verify(verifier: str, verifier_class: str | None, own: Collection[str], unit_class: str) -> bool:
    """Whether a verifier's replay of a unit can say anything about it.

    Bits are comparable within one environment class only: a replay in another class differs from honest work too. And
    nobody judges themselves.

    Args:
        verifier: its address.
        own: addresses of the unit's provider and payer, and of their owners' other nodes.
        verifier_class, unit_class: environment classes; None is an unknown one.
    """
    return verifier_class == unit_class and verifier not in own


def stake_covers_segment(stake_wei: int, segment_wei: int) -> bool:
    """Whether a verifier's stake is large enough for a segment of this gross price.

    With so much at stake even being suspended, by the reward on stake that it does not earn meanwhile, costs more than
    the pay for a wrong result, should others who lie alike make it prevail.
    """
    return stake_wei >= STAKE_COVER * segment_wei


class Fault(StrEnum):
    """Ways to give no result; :mod:`market.domain.nodes.reliability` weighs each of them."""

    REFUSED = "refused"  # it said so, whatever for: somebody else is asked at once
    SILENT = "silent"  # its lease ran out, or it took too long
    WITHHELD = "withheld"  # it had committed to a result, and did not open it


RESULT_WITHHELD = "result_withheld"
"""Reason of a replay whose result was committed to and never opened."""


def fault_of(reason: str | None, *, gave_up: bool, committed: bool) -> Fault | None:
    """What a verifier is to blame for whose replay ended without a result; None: nothing.

    Args:
        reason: why its lease ended.
        gave_up: it ended the lease itself, by a code that is no finding.
        committed: it had committed to a result before.
    """
    if not gave_up and reason not in (NODE_SILENT, REPLAY_OVERDUE):
        return None  # the lease was taken from it: it is jailed, its unit decided, or the job ended
    if committed:
        return Fault.WITHHELD
    return Fault.REFUSED if gave_up else Fault.SILENT


class Verdict(StrEnum):
    """What the replays of one segment say so far."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"  # ask one more verifier


def verdict(claimed_leaf: str, results: Sequence[str], *, nobody_left: bool = False) -> Verdict:
    """Judge one segment from the end leaves that different verifiers computed, in any order.

    One result settles it for the provider if nobody dissents, two do if somebody does. Against it, a leaf that two
    computed independently must lead by two. So one lying verifier gets nobody slashed and shields nobody, and two
    whose machines are broken in different ways do not either; two who lie alike are outvoted where two are honest.

    Args:
        nobody_left: there is no verifier left to ask. Then the majority decides; evenly, it stands for the provider.
    """
    found = Counter(results)
    for_it = found.pop(claimed_leaf, 0)
    against = max(found.values(), default=0)
    if for_it >= 2 or (for_it == 1 and (not found or (nobody_left and against <= 1))):
        return Verdict.PASSED
    lead = 1 if nobody_left else 2
    return Verdict.FAILED if against >= MIN_AGREEING_VERIFIERS and against - for_it >= lead else Verdict.OPEN


def outvoted(results: Sequence[str]) -> set[str]:
    """The leaves that fewer verifiers computed than another one, on which two or more agree."""
    found = Counter(results)
    most = max(found.values(), default=0)
    return {leaf for leaf, count in found.items() if most >= 2 and count < most}


class VerifierSanction(StrEnum):
    """What follows for a verifier against whose result two others agreed."""

    SUSPENDED = "suspended"  # its first case: it is not drawn for a while, and should probe its environment anew
    SAME_CASE = "same_case"  # the replay was assigned before it was suspended
    SLASHED = "wrong_replay"  # the row of the penalty table


def sanction_for(
    assigned_at: datetime, warned_at: datetime | None, now: datetime, *, copied: bool = False
) -> VerifierSanction:
    """Judge a verifier's result that :func:`outvoted` names: two others of its class agree with each other against it.

    An honest verifier's environment can stop being the one that it registered. So the first case costs no stake, nor
    does any replay that was assigned before it; who is wrong again within ``WARNING`` had the time to probe. No
    environment gives the end of another start, or the right end over a wrong inner state, so who ``copied`` is not
    warned.

    Args:
        assigned_at: when the replay was assigned.
        warned_at: when it was last suspended, if ever.
        copied: it answered a canary by the claimed end of the segment that this was planted on, or a first segment by
            its end alone (:func:`market.domain.verification.canaries.agreed_digest`).
    """
    if copied:
        return VerifierSanction.SLASHED
    if warned_at is None or now - warned_at > WARNING:
        return VerifierSanction.SUSPENDED
    return VerifierSanction.SLASHED if assigned_at > warned_at else VerifierSanction.SAME_CASE
