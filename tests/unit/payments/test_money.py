"""The money rules: nothing is lost, and rounding favours the payer only."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.errors import raises_code

from market.domain.money import MAX_FEE_BPS, MoneyError, Split, max_deterred_unit_price, parse_wei, split, unit_price
from market.domain.network import BPS, ZEN

prices = st.integers(0, 2**96 - 1)
weights = st.integers(0, 2**64 - 1)


@given(prices, weights)
def test_unit_price_floors_to_multiple_of_10000_wei(price: int, weight: int) -> None:
    exact = Fraction(price * weight, 3_600_000_000)
    unit = unit_price(price, weight)
    assert unit % BPS == 0
    assert unit <= exact < unit + BPS


@given(prices, weights, st.integers(0, 2**32 - 1), st.integers(0, MAX_FEE_BPS), st.integers(0, 2**96))
def test_split_preserves_total(price: int, weight: int, units: int, fee_bps: int, spare: int) -> None:
    unit = unit_price(price, weight)
    escrowed = unit * units + spare
    result = split(escrowed, unit, units, fee_bps)
    assert result.paid + result.fee + result.refund == escrowed
    assert result.gross == unit * units == result.paid + result.fee
    assert Fraction(result.fee) == Fraction(result.gross * fee_bps, BPS)  # exact, not merely floored
    assert result.paid % max(units, 1) == 0  # every unit is paid the same, however units are grouped
    assert result.refund == spare


def test_worked_example_splits_exactly() -> None:
    # 2.5 ZEN per GPU-hour, units of 90 reference GPU-seconds: 0.0625 ZEN each
    unit = unit_price(5 * ZEN // 2, 90_000_000)
    assert unit == ZEN // 16
    assert split(ZEN, unit, 12, 500) == Split(
        paid=712_500_000_000_000_000,
        fee=37_500_000_000_000_000,
        refund=250_000_000_000_000_000,
        gross=750_000_000_000_000_000,
    )


def test_unit_price_bound_equals_escrow_bound() -> None:
    """As in ``JobEscrow.open.t.sol``: 10,000 ZEN / 2 × 66 % × 64 segments × 2 % / 98 %."""
    assert max_deterred_unit_price(5_000 * ZEN, 64, 200) == 3_300 * ZEN * 64 * 200 // 9_800
    assert max_deterred_unit_price(5_000 * ZEN, 64, 0) == 0
    assert max_deterred_unit_price(0, 1, BPS) == 2**256 - 1


@given(st.integers(0, 2**96), st.integers(1, 2**16), st.integers(0, BPS - 1), st.integers(0, 10))
def test_unit_bound_matches_escrow_acceptance(penalty: int, segments: int, sampling: int, beyond: int) -> None:
    """P * d * N * s >= R * (1 - s) in rational numbers, d = 66 %."""
    unit = max_deterred_unit_price(penalty, segments, sampling) + beyond
    s = Fraction(sampling, BPS)
    assert (penalty * Fraction(66, 100) * segments * s >= unit * (1 - s)) is (beyond == 0)


def test_no_unit_means_full_refund() -> None:
    assert split(7, 0, 0, 500) == Split(paid=0, fee=0, refund=7, gross=0)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("budget_exceeded", (29_999, 10_000, 3, 500)),
        ("inexact_unit_price", (100_000, 10_001, 1, 500)),
        ("fee_too_high", (100_000, 10_000, 1, MAX_FEE_BPS + 1)),
        ("negative_amount", (100_000, 10_000, -1, 500)),
        ("negative_amount", (-1, 0, 0, 500)),
    ],
)
def test_invalid_split_is_refused(code: str, arguments: tuple[int, int, int, int]) -> None:
    with raises_code(MoneyError, code):
        split(*arguments)


def test_negative_price_is_refused_by_name() -> None:
    with raises_code(MoneyError, "negative_amount", match="price_wei_per_gpu_hour=-1"):
        unit_price(-1, 1)


@given(st.integers(0, 2**256 - 1))
def test_wei_round_trips_as_text(amount: int) -> None:
    assert parse_wei(str(amount)) == amount


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", "1e18", " 1", "1 ", "01", "0x10", "1_000", "١", "²", "ten", str(2**256), "9" * 5000]
)
def test_non_amount_text_is_refused(text: str) -> None:
    with raises_code(MoneyError, "invalid_wei") as refusal:
        parse_wei(text)
    assert len(str(refusal.value)) < 300
