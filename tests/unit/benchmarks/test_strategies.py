"""Simulated strategies lose by the rules; bounds of means are Wilson's."""

import random
from itertools import product

import pytest

from benchmarks.incentives import referee_strategies, strategies, timeouts
from benchmarks.incentives.lazy_verifiers import Laziness, chance, live
from benchmarks.incentives.strategies import HIGHEST_PRICES, HONEST, USUAL, Bench, Outcome, Strategy
from benchmarks.report import wilson
from market.domain.network import MAINNET, ZEN
from market.domain.verification.committees import MAX_INCONCLUSIVE_PROBABILITY, inconclusive_probability
from market.domain.verification.sampling import VerifierSanction
from zoo_protocol.verification.sampling import detection_probability

pytestmark = pytest.mark.long
_STAKE = MAINNET.tier("bronze").minimum_stake_wei


@pytest.mark.parametrize("clean", [0, strategies.ESTABLISHED])
def test_honesty_costs_and_saves_nothing(clean: int) -> None:
    assert {strategies.life(HONEST, HIGHEST_PRICES[0], clean, random.Random(seed)) for seed in range(20)} == {0}


def test_new_provider_falsifying_everything_is_caught_at_once() -> None:
    lazy = Strategy("lazy", frozenset(range(4)), 1.0)
    lost = USUAL.cost_wei - USUAL.net_wei - _STAKE // 2
    assert {strategies.life(lazy, USUAL, 0, random.Random(seed)) for seed in range(20)} == {lost}


@pytest.mark.parametrize("offence", ["withheld_data", "refused_data"])
def test_data_withholding_is_penalised_like_false_segment(offence: str) -> None:
    life = strategies.life(Strategy("w", frozenset(range(4)), 0.0, withholds=offence), USUAL, 0, random.Random(0))
    assert life == -USUAL.net_wei - _STAKE // 2


def test_colluding_verifiers_prevent_every_slash() -> None:
    bought = Strategy("b", frozenset(range(4)), 1.0, accomplices=strategies.VERIFIERS)
    gained = strategies.life(bought, USUAL, 0, random.Random(0)) - strategies.UNITS * USUAL.cost_wei
    assert gained > 0  # they are paid for replays that they did not compute
    assert gained % USUAL.replay_wei == 0


def test_lifetimes_match_formula() -> None:
    dice = random.Random(1)
    one = Strategy("one", frozenset({2}))
    found = sum(strategies._offence(one, 0, Bench(USUAL), dice) is not None for _ in range(4_000))
    low, high = wilson(found, 4_000)
    assert low <= detection_probability(4, 1, 1) <= high


@pytest.mark.parametrize("is_bounded", [True, False])
def test_burst_pays_only_without_bound_in_flight(monkeypatch: pytest.MonkeyPatch, is_bounded: bool) -> None:
    if not is_bounded:
        monkeypatch.setattr(strategies, "may_start_unit", lambda *_: True)
    dice = random.Random(3)
    for prices in (USUAL, *HIGHEST_PRICES):
        lived = [strategies.burst(prices, 400, strategies.ESTABLISHED, 0, dice) for _ in range(30)]
        assert (sum(lived) < 0) is is_bounded


AT_EACH_PRICE = pytest.mark.parametrize("prices", [USUAL, *HIGHEST_PRICES], ids=lambda prices: prices.name)


@AT_EACH_PRICE
def test_every_dishonest_strategy_loses_at_any_price(prices: strategies.Prices) -> None:
    for outcome in strategies.provider_outcomes(60 if prices is USUAL else 250, 8, prices):
        assert outcome.high < 0, outcome.name


@pytest.mark.parametrize("prices", [USUAL, HIGHEST_PRICES[0]], ids=lambda prices: prices.name)
def test_every_dishonest_strategy_loses_in_worst_class_mix(prices: strategies.Prices) -> None:
    able, mute, undecided = referee_strategies.worst_mix()
    assert MAX_INCONCLUSIVE_PROBABILITY / 2 < undecided <= MAX_INCONCLUSIVE_PROBABILITY
    assert inconclusive_probability(able - 1, mute + 1, MAINNET.disputes) > MAX_INCONCLUSIVE_PROBABILITY
    for outcome in strategies.provider_outcomes(800, 13, prices, undecided):
        assert outcome.high < 0, outcome.name


def test_inconclusive_disputes_cost_dishonest_provider_only_pay() -> None:
    lazy = Strategy("lazy", frozenset(range(4)), 1.0)
    unpunished = strategies.life(lazy, USUAL, 0, random.Random(0), undecided=1.0)
    disputed, rest = divmod(strategies.UNITS * USUAL.cost_wei - unpunished, USUAL.net_wei)
    assert rest == 0
    assert 1 < disputed <= strategies.UNITS


@AT_EACH_PRICE
def test_wrong_verifiers_lose_and_honest_ones_gain(prices: strategies.Prices) -> None:
    for outcome in strategies.verifier_outcomes(250, 9, prices):
        assert outcome.high < 0, outcome.name
    assert strategies.honest_verifier_wei(prices) > 0


def test_only_single_false_verifier_is_suspended_then_slashed() -> None:
    bench, refuted = strategies._refute_honest_segments(Bench(USUAL, dishonest=1), 400, random.Random(0))
    assert refuted == 0
    stake = USUAL.verifier_stake_wei
    assert bench.earned == -(stake // 5 * 30 // 365) - stake // 5
    assert bench.wrongly_slashed() == 0


def test_every_dishonest_strategy_is_simulated() -> None:
    assert len({cheat.name for cheat in strategies.DISHONEST_STRATEGIES}) == 9


@AT_EACH_PRICE
def test_late_and_refusing_nodes_lose(prices: strategies.Prices) -> None:
    for outcome in (*timeouts.late_outcomes(60, 13, prices), *timeouts.refusing_outcomes(20, 14, prices)):
        assert outcome.high < 0, outcome.name


def test_refusals_reduce_selection_to_zero() -> None:
    def earned(refusal: timeouts.Refusal) -> int:
        return sum(timeouts.refusing_life(refusal, USUAL, 1_000, random.Random(seed)) for seed in range(10))

    everything, half, *_ = timeouts.REFUSALS
    assert earned(everything) == 0
    assert 0 < earned(half) < 0.45 * earned(timeouts.Refusal("honest"))


def test_honest_work_pays() -> None:
    assert strategies.honest_outcome(3, 0).low > 0


def test_false_challengers_lose_their_bond() -> None:
    alone, *_ = strategies.challenger_outcomes(50, 0)
    assert alone.mean == -MAINNET.disputes.bond_wei / ZEN
    assert all(outcome.high < 0 for outcome in strategies.challenger_outcomes(400, 0))


@AT_EACH_PRICE
def test_inactive_referees_lose_and_honest_ones_gain(prices: strategies.Prices) -> None:
    assert len({cartel.vote for cartel in referee_strategies.CARTELS}) == len(referee_strategies.Vote)
    for outcome in referee_strategies.cartel_outcomes(60, 11, prices):
        assert outcome.high < 0, outcome.name
    for outcome in referee_strategies.honest_outcomes(200, 12, prices):
        assert outcome.low > 0, outcome.name


def test_price_bound_is_lowest_stake_then_fee() -> None:
    by_tier = {prices.tier.name: prices.gross_wei for prices in HIGHEST_PRICES}
    fees = 4 * MAINNET.disputes.referee_fee_wei
    stake = 500 * ZEN * 66 * 4 * 2 // 9_800
    assert by_tier == {"bronze": stake, "silver": fees, "gold": fees, "iron": stake}


def test_single_false_verifier_is_penalised_once_by_table() -> None:
    life = referee_strategies.cartel_life(referee_strategies.CARTELS[0], USUAL, random.Random(0))
    seats = -(life + MAINNET.verifier_minimum_stake_wei // 5)  # the reward of honest work until then
    assert seats > 0
    assert seats % referee_strategies.seat_profit_wei(USUAL) == 0


def test_quarter_of_referees_escape_at_quorum_probability() -> None:
    """1126 of the 15504 committees of 5 from 20 have at least three of five."""
    assert referee_strategies.escaped_share(5) == 1_126 / 15_504
    assert referee_strategies.escaped_share(5) < 1 - 0.66  # the price bound of orders counts on 66 % of a penalty


def test_delisting_inactive_referees_lowers_escape_probability() -> None:
    share = referee_strategies.inconclusive_share
    assert share(10, struck=False) == pytest.approx(share_of_draws(10, struck=False), abs=0.015)
    assert share(10) == pytest.approx(share_of_draws(10, struck=True), abs=0.015)
    assert [share(silent) < share(silent, struck=False) / 2 for silent in (1, 5, 10)] == [True] * 3
    assert share(20) == share(20, struck=False) == pytest.approx(1)


def share_of_draws(silent: int, *, struck: bool) -> float:
    dice, undecided = random.Random(1), 0
    for _ in range(10_000):
        pool = set(range(20))
        for _ in range(3):
            committee = dice.sample(sorted(pool), 5)
            signed = {one for one in committee if one >= silent and dice.random() < 0.9}
            if len(signed) >= 3:
                break
            pool -= set(committee) - signed if struck else set()
        else:
            undecided += 1
    return undecided / 10_000


def test_wilson_bounds_match_manual_values() -> None:
    """Against values computed by hand from the formula with z = 2.5758."""
    assert wilson(0, 100) == pytest.approx((0, 0.06222), abs=1e-5)
    assert all(wilson(of, of)[1] == 1.0 and wilson(0, of)[0] == 0.0 for of in range(1, 300))
    low, high = wilson(50, 100)
    assert low == pytest.approx(1 - high) == pytest.approx(0.37528, abs=1e-4)


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("laziness", Laziness)
def test_lazy_verifiers_are_found_at_formula_rate(laziness: Laziness, share: float) -> None:
    dice = random.Random(3)
    lives = [live(laziness, share, dice) for _ in range(250)]
    for replays in (1, 20, 50):
        found = sum(life.found_after is not None and life.found_after <= replays for life in lives)
        low, high = wilson(found, len(lives))
        assert low <= chance(laziness, share, replays) <= high


def test_echoed_answer_is_slashed_at_once_others_later() -> None:
    dice = random.Random(4)
    echoing = [live(Laziness.CLAIM_KNOWN, 1.0, dice) for _ in range(30)]
    assert {life.follows for life in echoing if life.found_after} == {(VerifierSanction.SLASHED,)}
    told_first = [live(Laziness.FIRST_CLAIM_KNOWN, 1.0, dice) for _ in range(30)]
    assert {life.follows for life in told_first} == {(), (VerifierSanction.SLASHED,)}
    assert {live(Laziness.ECHOES, 1.0, dice).follows for _ in range(9)} == {
        (VerifierSanction.SUSPENDED, VerifierSanction.SLASHED)
    }


@pytest.mark.parametrize("laziness", Laziness)
def test_laziness_costs_more_than_it_saves(laziness: Laziness) -> None:
    for share in (0.1, 1.0):
        dice = random.Random(5)
        lives = [live(laziness, share, dice) for _ in range(120)]
        for prices, careful in product([USUAL, *HIGHEST_PRICES], [False, True]):
            wei = [life.profit_wei(prices, careful=careful) for life in lives]
            assert Outcome.of(laziness.value, wei).mean < 0, (prices.name, careful)
