"""The simulated strategies: what they lose is what the rules say, and the bounds around their means are Wilson's."""

import random

import pytest

from benchmarks import strategies
from benchmarks.strategies import CHEATS, DEAREST, HONEST, USUAL, Outcome, Strategy
from benchmarks.verification import wilson
from market.domain.network import MAINNET, ZEN
from zoo_protocol.sampling import detection_probability

_STAKE = MAINNET.tier("bronze").minimum_stake_wei


@pytest.mark.parametrize("clean", [0, strategies.ESTABLISHED])
def test_honesty_costs_and_saves_nothing(clean: int) -> None:
    assert {strategies.life(HONEST, DEAREST, clean, random.Random(seed)) for seed in range(20)} == {0}


def test_a_newcomer_that_falsifies_everything_is_caught_with_its_first_unit() -> None:
    """One of four segments is drawn at 25 %, always."""
    lazy = Strategy("lazy", frozenset(range(4)), 1.0)
    lost = USUAL.cost_wei - USUAL.net_wei - _STAKE // 2
    assert {strategies.life(lazy, USUAL, 0, random.Random(seed)) for seed in range(20)} == {lost}


def test_a_withholder_is_fined_for_withholding() -> None:
    life = strategies.life(Strategy("w", frozenset(range(4)), 0.0, withholds=True), USUAL, 0, random.Random(0))
    assert life == -USUAL.net_wei - _STAKE // 5


def test_with_every_verifier_bought_nobody_is_convicted() -> None:
    bought = Strategy("b", frozenset(range(4)), 1.0, accomplices=strategies.VERIFIERS)
    assert strategies.life(bought, USUAL, 0, random.Random(0)) == strategies.UNITS * USUAL.cost_wei


def test_lives_end_as_often_as_the_formula_says() -> None:
    """A newcomer's first unit with one false segment of four is found with a chance of a quarter."""
    dice = random.Random(1)
    one = Strategy("one", frozenset({2}))
    found = sum(strategies._offence(one, 0, dice) is not None for _ in range(4_000))
    low, high = wilson(found, 4_000)
    assert low <= detection_probability(4, 1, 1) <= high


@pytest.mark.parametrize("outcome", strategies.provider_outcomes(60, 7, USUAL), ids=lambda outcome: outcome.name)
def test_at_the_reserve_price_every_cheat_loses(outcome: Outcome) -> None:
    assert outcome.high < 0


def test_every_kind_of_cheat_is_lived() -> None:
    assert len({cheat.name for cheat in CHEATS}) == 8


def test_honest_work_pays() -> None:
    assert strategies.honest_outcome(3, 0).low > 0


def test_false_accusers_lose_their_bond() -> None:
    alone, *_ = strategies.accuser_outcomes(50, 0)
    assert alone.mean == -MAINNET.disputes.bond_wei / ZEN
    assert all(outcome.high < 0 for outcome in strategies.accuser_outcomes(400, 0))


def test_wilson_bounds() -> None:
    """Against values computed by hand from the formula with z = 2.5758."""
    assert wilson(0, 100) == pytest.approx((0, 0.06222), abs=1e-5)
    low, high = wilson(50, 100)
    assert low == pytest.approx(1 - high) == pytest.approx(0.37528, abs=1e-4)
