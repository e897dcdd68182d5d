"""The arithmetic of quotes."""

from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.domain.money import unit_price
from market.domain.network import BPS, HOUR_US, MAINNET, ZEN
from market.jobs.advice import advice_on, expected_throughput
from market.jobs.errors import InvalidOrder
from market.jobs.quotes import _require_stake_covers_gain, highest_price, newcomer_detection
from training_gym.config import TrainingSpec

amounts = st.integers(1, 2**96 - 1)


@given(budget=amounts, max_price=amounts, units=st.integers(1, 10_000), weight=st.integers(1, 2**64 - 1))
def test_the_highest_price_is_payable_and_no_higher_one_is(
    budget: int, max_price: int, units: int, weight: int
) -> None:
    best = highest_price(budget, max_price, units, weight)
    assert best <= max_price
    assert units * unit_price(best, weight) <= budget
    assert best == max_price or units * unit_price(best + 1, weight) > budget


@pytest.mark.parametrize(("segments", "rate_bps"), [(4, 2500), (8, 2500), (3, 2500), (10, 200), (1, 10_000)])
def test_the_chance_of_detection_is_that_of_the_draw(segments: int, rate_bps: int) -> None:
    whole, fraction = divmod(segments * rate_bps, 10_000)

    def share(drawn: int) -> float:
        draws = list(combinations(range(segments), drawn))
        return sum(0 in draw for draw in draws) / len(draws)

    expected = share(whole) + (share(min(whole + 1, segments)) - share(whole)) * fraction / 10_000
    assert newcomer_detection(segments, rate_bps) == pytest.approx(expected)


def test_an_order_whose_cheats_risk_too_little_is_refused_with_the_penalty_and_the_bound() -> None:
    """Bronze: 500 ZEN of a cheat's stake burn, of which 66 % count; of 4 segments 2 % are drawn."""
    bronze = MAINNET.tier("bronze")
    most = 500 * ZEN * 66 // 100 * 4 * 200 // 9_800
    price = most - most % BPS
    _require_stake_covers_gain(SimpleNamespace(max_price=price), bronze, HOUR_US, 4, 200)  # type: ignore[arg-type]
    with pytest.raises(InvalidOrder) as refused:
        _require_stake_covers_gain(SimpleNamespace(max_price=price + BPS), bronze, HOUR_US, 4, 200)  # type: ignore[arg-type]
    assert refused.value.extra == {"reason": "stake_below_gain"}
    assert f"{500 * ZEN} wei of its stake" in str(refused.value)
    assert f"up to {most} wei a unit" in str(refused.value)


@pytest.mark.parametrize(
    ("training", "codes"),
    [
        ({"rounds": 8}, []),  # every entry is sent
        ({"rounds": 63, "method": "slow_links"}, ["few_rounds"]),
        ({"rounds": 64, "method": "slow_links"}, []),
        ({"rounds": 63, "method": "sparseloco"}, []),  # nodes fetch the whole model
    ],
)
def test_few_sparse_rounds_are_pointed_out(training: dict[str, object], codes: list[str]) -> None:
    spec = TrainingSpec.from_dict({"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": training})
    found = advice_on(spec, expected_throughput(spec, 4, compute_seconds=1000.0))
    assert [point.code for point in found] == codes
    if found:
        assert "at most 98.4% of the model" in found[0].detail
        assert "at least 64 rounds" in found[0].remedy


def test_a_job_that_waits_more_than_it_trains_is_pointed_out() -> None:
    spec = TrainingSpec.from_dict({"data_config": {"dataset": "Qm" + "a" * 44}})
    for compute, codes in ((10.0, []), (0.1, ["low_throughput"])):
        expected = expected_throughput(spec, 4, compute)
        found = advice_on(spec, expected)
        assert [point.code for point in found] == codes
        assert (expected.share_of_ideal < 0.5) == bool(codes)
    assert f"{expected.share_of_ideal:.0%} of the throughput" in found[0].detail
    assert "round_delay 1" in found[0].remedy
