"""How likely a dispute's committees are to end without a verdict, by who is on the list of referees. Pure."""

import math

from market.domain.network import DisputeTerms

PRESENT = 0.9
"""Share of its seats in which a referee that can judge is assumed to sign in time."""


MOST_UNDECIDED = 0.01
"""Chance of no verdict up to which a committee is asked. Price bounds allow for 34 % of convictions that fail, of which
a quarter of the referees bought takes 7 % (decision 11): one in a hundred more changes neither (decision 12)."""


def inconclusive_probability(able: int, mute: int, terms: DisputeTerms) -> float:
    """The chance, exactly, that all committees of a dispute miss their quorum; 1 if there are too few to draw from.

    Who was silent in a committee is struck, and drawn again only to fill seats that nobody else can
    (decision 11).

    Args:
        able: referees on the list that can judge; each signs with the chance ``PRESENT``, whenever it is drawn.
        mute: those that never sign.
        terms: seats, quorum and draws.
    """
    if able + mute < terms.seats:
        return 1.0
    return _undecided((able, mute), (0, 0), terms.draws, terms)


def _undecided(fresh: tuple[int, int], struck: tuple[int, int], draws: int, terms: DisputeTerms) -> float:
    """The same for the draws that are left; of both, the able and the mute."""
    if draws == 0:
        return 1.0
    first = min(terms.seats, sum(fresh))
    missed = 0.0
    for able, chance in _drawn(*fresh, first).items():
        for returned, chance_of_those in _drawn(*struck, terms.seats - first).items():
            for silent, chance_of_silence in _silent(able, returned, terms.quorum).items():
                gone = silent, first - able
                left = fresh[0] - gone[0], fresh[1] - gone[1]
                then = struck[0] + gone[0], struck[1] + gone[1]
                missed += chance * chance_of_those * chance_of_silence * _undecided(left, then, draws - 1, terms)
    return missed


def _drawn(able: int, mute: int, seats: int) -> dict[int, float]:
    """How likely so many of the seats go to the able."""
    possible = range(max(0, seats - mute), min(able, seats) + 1)
    return {
        count: math.comb(able, count) * math.comb(mute, seats - count) / math.comb(able + mute, seats)
        for count in possible
    }


def _silent(able: int, returned: int, quorum: int) -> dict[int, float]:
    """How likely so many of the able are silent while fewer than a quorum signs, also of those drawn once more."""
    return {
        able - signed: _binomial(able, signed) * sum(_binomial(returned, more) for more in range(quorum - signed))
        for signed in range(min(able + 1, quorum))
    }


def _binomial(count: int, signed: int) -> float:
    return math.comb(count, signed) * PRESENT**signed * (1 - PRESENT) ** (count - signed) if signed <= count else 0.0
