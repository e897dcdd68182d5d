"""Rounded amounts: one text on console and terminal, not above an amount or below a limit."""

import re
from decimal import Decimal

import pytest

from market.console.rendering import amount, short_zen
from zoo_compute.terminal.output import in_zen, zen

ZEN = 10**18
CASES = {
    0: "0",
    12: "0.000000000000000012",
    1: "0.000000000000000001",
    5 * ZEN // 10: "0.5",
    48_779_999_999_999_999: "≈\u00a00.04877",
    123_456: "≈\u00a00.0000000000001234",
    999_999_999_999_999_999: "≈\u00a00.9999",
    ZEN + 1: "≈\u00a01",
    9_999_999 * ZEN // 1_000_000: "≈\u00a09.99999",
    12_345_678_901 * ZEN // 1_000_000: "≈\u00a012,345.67",
    1_234_567_890_123_456_789_012: "≈\u00a01,234.56",
    602_740_990_000_000_000_000_000: "≈\u00a0602,740",
    1_234_500 * ZEN: "1,234,500",
    2**96 - 1: "≈\u00a079,228,162,514",
    -5 * ZEN // 2: "−2.5",
    -48_771_374_444_208_000: "≈\u00a0−0.04878",
}


@pytest.mark.parametrize(("wei", "text"), CASES.items())
def test_console_and_commands_show_same_amount(wei: int, text: str) -> None:
    assert short_zen(wei) == text
    assert f">{text} ZEN</span>" in amount(wei)
    assert zen(str(wei)) == text
    assert in_zen({"balance_wei": str(wei)}) == {"balance": f"{text} ZEN"}


LIMITS = {
    0: "0",
    5 * ZEN // 10: "0.5",
    48_770_000_000_000_001: "≈\u00a00.04878",
    999_999_999_999_999_999: "≈\u00a01",
    ZEN + 1: "≈\u00a01.00001",
    999_999_990_000_000_000_000_001: "≈\u00a01,000,000",
    1_234_560_000_000_000_000_001: "≈\u00a01,234.57",
    2**96 - 1: "≈\u00a079,228,162,515",
}


@pytest.mark.parametrize(("wei", "text"), LIMITS.items())
def test_console_and_commands_round_limits_up(wei: int, text: str) -> None:
    assert short_zen(wei, is_limit=True) == text
    assert f">{text} ZEN</span>" in amount(wei, is_limit=True)
    limits = {f"{name}_wei": str(wei) for name in ("budget", "escrowed", "max_price", "price_cap")}
    assert set(in_zen(limits).values()) == {f"{text} ZEN"}
    assert Decimal(re.sub("[≈\u00a0,]", "", text)) * ZEN >= wei


@pytest.mark.parametrize("wei", CASES)
def test_rounded_amount_is_not_above_exact_one(wei: int) -> None:
    shown = Decimal(re.sub("[≈\u00a0,]", "", short_zen(wei)).replace("−", "-"))
    assert wei - abs(wei) // 1_000 - 1 <= shown * ZEN <= wei
