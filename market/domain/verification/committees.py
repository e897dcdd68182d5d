"""Probability that a dispute is inconclusive, for a given list of referees. Pure."""

import math

from market.domain.network import DisputeTerms

PRESENCE_RATE = 0.9
"""Assumed probability that an able referee signs in time."""

MAX_INCONCLUSIVE_PROBABILITY = 0.01
"""Highest probability of an inconclusive dispute at which the market opens one. Price bounds allow for 34 % of disputes
that fail, of which bribery of a quarter of the referees takes 7 % (decisions 11 and 12)."""


def inconclusive_probability(able: int, mute: int, terms: DisputeTerms) -> float:
    """Return the exact probability that all committees miss their quorum.

    A referee that was silent in a committee is delisted. It is drawn again only if seats stay empty (decision 11).

    Args:
        able: listed referees that can replay; each one signs with probability ``PRESENCE_RATE`` per draw.
        mute: listed referees that never sign.
    """
    if able + mute < terms.seats:
        return 1.0
    return _inconclusive((able, mute), (0, 0), terms.draws, terms)


def _inconclusive(fresh: tuple[int, int], delisted: tuple[int, int], draws: int, terms: DisputeTerms) -> float:
    """Return the probability for the remaining draws; both pairs are (able, mute)."""
    if draws == 0:
        return 1.0
    first = min(terms.seats, sum(fresh))
    missed = 0.0
    for able, chance in _drawn_probability(*fresh, first).items():
        for returned, chance_of_those in _drawn_probability(*delisted, terms.seats - first).items():
            for silent, silent_probability in _silent_probability(able, returned, terms.quorum).items():
                gone = silent, first - able
                left = fresh[0] - gone[0], fresh[1] - gone[1]
                then = delisted[0] + gone[0], delisted[1] + gone[1]
                missed += chance * chance_of_those * silent_probability * _inconclusive(left, then, draws - 1, terms)
    return missed


def _drawn_probability(able: int, mute: int, seats: int) -> dict[int, float]:
    """Return the probabilities of the numbers of seats that able referees get."""
    possible = range(max(0, seats - mute), min(able, seats) + 1)
    return {
        count: math.comb(able, count) * math.comb(mute, seats - count) / math.comb(able + mute, seats)
        for count in possible
    }


def _silent_probability(able: int, returned: int, quorum: int) -> dict[int, float]:
    """Return the probabilities of the numbers of silent referees and a missed quorum."""
    return {
        able - signed: _binomial(able, signed) * sum(_binomial(returned, more) for more in range(quorum - signed))
        for signed in range(min(able + 1, quorum))
    }


def _binomial(count: int, signed: int) -> float:
    return (
        math.comb(count, signed) * PRESENCE_RATE**signed * (1 - PRESENCE_RATE) ** (count - signed)
        if signed <= count
        else 0.0
    )
