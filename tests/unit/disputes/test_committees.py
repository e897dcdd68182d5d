"""Probabilities that committees miss their quorum, against a simulation and manual counts."""

import random
from itertools import pairwise

import pytest

from market.domain.network import DEVNET, MAINNET, DisputeTerms
from market.domain.verification.committees import PRESENCE_RATE, inconclusive_probability

LIVES = 20_000
FIVE, THREE = MAINNET.disputes, DEVNET.disputes


@pytest.mark.parametrize(
    ("able", "mute", "terms"),
    [
        (10, 10, FIVE),
        (7, 13, FIVE),
        (20, 40, FIVE),
        (3, 2, FIVE),
        (5, 4, FIVE),
        (2, 1, THREE),
        (3, 3, THREE),
        (2, 4, THREE),
    ],
)
def test_probability_matches_simulated_disputes(able: int, mute: int, terms: DisputeTerms) -> None:
    assert inconclusive_probability(able, mute, terms) == pytest.approx(simulated(able, mute, terms), abs=0.012)


def simulated(able: int, mute: int, terms: DisputeTerms) -> float:
    dice, undecided = random.Random(1), 0
    for _ in range(LIVES):
        fresh, delisted = set(range(able + mute)), set[int]()
        for _ in range(terms.draws):
            committee = set(dice.sample(sorted(fresh), min(terms.seats, len(fresh))))
            committee |= set(dice.sample(sorted(delisted), terms.seats - len(committee)))
            signed = {one for one in committee if one < able and dice.random() < PRESENCE_RATE}
            if len(signed) >= terms.quorum:
                break
            fresh -= committee - signed
            delisted |= committee - signed
        else:
            undecided += 1
    return undecided / LIVES


def test_inconclusive_probability_matches_manual_cases() -> None:
    assert inconclusive_probability(2, 1, THREE) == pytest.approx(
        (1 - PRESENCE_RATE**2) ** 3
    )  # the same three, three times
    assert inconclusive_probability(2, 3, FIVE) == pytest.approx(1)
    assert inconclusive_probability(4, 0, FIVE) == 1.0  # no committee can be drawn


def test_verdict_probability_grows_with_class_share() -> None:
    for count in (5, 9, 20, 40):
        chances = [inconclusive_probability(able, count - able, FIVE) for able in range(count + 1)]
        assert all(before >= after - 1e-12 for before, after in pairwise(chances))
