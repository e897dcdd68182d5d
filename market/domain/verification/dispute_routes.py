"""Choice between a dispute on chain and the operator, for refuted units. Pure.

A committee decides every case that it can, because it does not require trust in the operator. The other cases have a
reason (decision 12), which is published with the penalty.
"""

from dataclasses import dataclass
from enum import StrEnum

from market.domain.network import DisputeTerms
from market.domain.verification.committees import MAX_INCONCLUSIVE_PROBABILITY, inconclusive_probability

MAX_SEGMENTS = 64
"""Maximum segments of a unit that can be disputed (``Challenges.MAX_SEGMENTS``)."""


class DecidedBy(StrEnum):
    DISPUTE = "dispute"
    OPERATOR = "operator"


class Reason(StrEnum):
    """Reason why the operator decides."""

    DISPUTES_OFF = "disputes_off"  # by the market's setting
    NO_CHALLENGER = "no_challenger"  # the market has no challenger account
    NOT_REPLAYABLE = "not_replayable"  # withheld data, or a verifier's wrong result: no segment to replay
    TOO_MANY_SEGMENTS = "too_many_segments"
    DISPUTED_BEFORE = "disputed_before"  # a challenger has one dispute per unit
    PERIOD_OVER = "period_over"  # the challenge period is over, or nearly
    TOO_FEW_REFEREES = "too_few_referees"
    TOO_FEW_OF_CLASS = "too_few_of_class"  # an inconclusive dispute is too likely
    OPEN_REFUSED = "open_refused"  # the contract refused to open the dispute
    BOND_MISSING = "bond_missing"  # the account has less ZEN than the bond


@dataclass(frozen=True, slots=True)
class Case:
    """Facts that the choice depends on.

    Attributes:
        offence: name in the penalty table.
        disputed_before: the market has disputed this unit.
        seconds_left: remaining challenge period, by the chain's clock.
        referees: registered referees that are not a party and have another owner than the provider.
        of_class: those that are known to be of the unit's environment class; others never sign.
        balance_wei: ZEN of the challenger account.
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
    """Result of :func:`route`; ``reason`` is None for a committee."""

    path: DecidedBy
    reason: Reason | None = None


def is_replayable(offence: str) -> bool:
    """Return True if a committee can decide this offence by replaying a segment."""
    return offence == "incorrect_computation"


def route(case: Case, terms: DisputeTerms) -> Route:
    """Choose between committee and operator, for a market with a challenger account.

    The operator decides if less than a response deadline of the challenge period is left. An outage or a full chain
    could make the market miss it. It also decides if the dispute is likely inconclusive, since that slashes no one.
    """
    inconclusive = inconclusive_probability(case.of_class, case.referees - case.of_class, terms)
    reasons = {
        Reason.NOT_REPLAYABLE: not is_replayable(case.offence),
        Reason.TOO_MANY_SEGMENTS: case.segments > MAX_SEGMENTS,
        Reason.DISPUTED_BEFORE: case.disputed_before,
        Reason.PERIOD_OVER: case.seconds_left <= terms.turn_seconds,
        Reason.TOO_FEW_REFEREES: case.referees < terms.seats,
        Reason.TOO_FEW_OF_CLASS: inconclusive > MAX_INCONCLUSIVE_PROBABILITY,
        Reason.BOND_MISSING: case.balance_wei < terms.bond_wei,
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    return Route(DecidedBy.DISPUTE) if found is None else Route(DecidedBy.OPERATOR, found)
