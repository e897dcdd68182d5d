"""Who decides over work that replays refute: a committee in the contract Disputes, or the operator's key. Pure.

A committee decides whatever it can decide, since nobody needs to trust the operator then. What is left to the operator
(decision 12) is named by a reason, which is published with the penalty.
"""

from dataclasses import dataclass
from enum import StrEnum

from market.domain.network import DisputeTerms
from market.domain.verification.committees import MOST_UNDECIDED, inconclusive_probability

MAX_SEGMENTS = 64
"""Of a unit that can be disputed (``Challenges.MAX_SEGMENTS``)."""


class DecidedBy(StrEnum):
    """Who decides."""

    DISPUTE = "dispute"
    OPERATOR = "operator"


class Reason(StrEnum):
    """Why it is the operator."""

    DISPUTES_OFF = "disputes_off"  # by the market's setting
    NO_CHALLENGER = "no_challenger"  # the market has no account to dispute with
    NOT_REPLAYABLE = "not_replayable"  # withheld data, or a verifier's wrong result: no step to be replayed
    TOO_MANY_SEGMENTS = "too_many_segments"
    DISPUTED_BEFORE = "disputed_before"  # a challenger has one dispute of a unit
    PERIOD_OVER = "period_over"  # the unit can be disputed no more, or too shortly
    TOO_FEW_REFEREES = "too_few_referees"
    TOO_FEW_OF_CLASS = "too_few_of_class"  # of the referees: committees would likely end without a verdict
    OPEN_REFUSED = "open_refused"  # the contract would not open the dispute
    BOND_MISSING = "bond_missing"  # the account has less ZEN than the bond


@dataclass(frozen=True, slots=True)
class Case:
    """What the choice depends on.

    Attributes:
        offence: of the penalty table.
        segments: of the unit.
        disputed_before: whether the market has disputed this unit.
        seconds_left: until the unit can be disputed no more, by the chain's clock.
        referees: registered ones that qualify, are no party and have another owner than the provider.
        of_class: those of them that are known to be of the unit's environment class; others sign nothing.
        balance_wei: ZEN of the challenger's account.
    """

    offence: str
    segments: int
    disputed_before: bool
    seconds_left: int
    referees: int
    of_class: int
    balance_wei: int


@dataclass(frozen=True, slots=True)
class Route:
    """Who decides; ``reason`` says why not a committee, None if it does."""

    path: DecidedBy
    reason: Reason | None = None


def is_replayable(offence: str) -> bool:
    """Whether a committee that replays a step can decide over this offence."""
    return offence == "incorrect_computation"


def route(case: Case, terms: DisputeTerms) -> Route:
    """Choose who decides, for a market that has an account to dispute with.

    A dispute is not begun in the last turn's length of its period: a market that was down, or a chain that is full,
    must not let a cheat off. Nor is one begun that will likely stay undecided, for then nobody is punished.
    """
    undecided = inconclusive_probability(case.of_class, case.referees - case.of_class, terms)
    reasons = {
        Reason.NOT_REPLAYABLE: not is_replayable(case.offence),
        Reason.TOO_MANY_SEGMENTS: case.segments > MAX_SEGMENTS,
        Reason.DISPUTED_BEFORE: case.disputed_before,
        Reason.PERIOD_OVER: case.seconds_left <= terms.turn_seconds,
        Reason.TOO_FEW_REFEREES: case.referees < terms.seats,
        Reason.TOO_FEW_OF_CLASS: undecided > MOST_UNDECIDED,
        Reason.BOND_MISSING: case.balance_wei < terms.bond_wei,
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    return Route(DecidedBy.DISPUTE) if found is None else Route(DecidedBy.OPERATOR, found)
