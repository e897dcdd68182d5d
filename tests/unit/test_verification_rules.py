"""The pure rules of verification: sampling rate, verdicts, penalties."""

import pytest

from market.domain.network import DEVNET, MAINNET
from market.domain.verification import (
    DIVERGED,
    OFFENCE_IDS,
    Verdict,
    may_judge,
    sampling_rate_bps,
    verdict,
)

CLAIM, LIE, OTHER = ("0x" + digit * 64 for digit in "abc")


@pytest.mark.parametrize(
    ("clean", "rate"), [(0, 2_500), (15, 2_500), (16, 1_250), (32, 625), (48, 312), (64, 200), (10**9, 200)]
)
def test_rate_halves_with_clean_work_down_to_the_floor(clean: int, rate: int) -> None:
    assert sampling_rate_bps(clean, MAINNET.newcomer_sampling_bps, MAINNET.sampling_floor_bps) == rate


def test_rate_refuses_a_negative_history() -> None:
    with pytest.raises(ValueError, match="clean_units=-1"):
        sampling_rate_bps(-1, 2_500, 200)


@pytest.mark.parametrize(
    ("verifier", "verifier_class", "expected"),
    [("0xA", "class 1", True), ("0xA", "class 2", False), ("0xA", None, False), ("0xB", "class 1", False)],
)
def test_only_others_of_the_same_class_judge(verifier: str, verifier_class: str | None, expected: bool) -> None:
    assert may_judge(verifier, verifier_class, "0xB", "class 1") is expected


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], Verdict.OPEN),
        ([CLAIM], Verdict.PASSED),
        ([LIE], Verdict.OPEN),
        ([LIE, CLAIM], Verdict.PASSED),
        ([LIE, LIE], Verdict.FAILED),
        ([LIE, OTHER], Verdict.OPEN),
        ([LIE, OTHER, LIE], Verdict.FAILED),
        ([DIVERGED], Verdict.OPEN),
        ([DIVERGED, DIVERGED], Verdict.FAILED),
    ],
)
def test_verdict_table(results: list[str], expected: Verdict) -> None:
    assert verdict(CLAIM, results) is expected


def test_no_claimable_leaf_equals_a_diverged_replay() -> None:
    assert not DIVERGED.startswith("0x")  # leaves are 0x hex


def test_offences_are_the_rows_of_the_penalty_table() -> None:
    assert {name: row for row, (name, _) in enumerate(DEVNET.penalty_bps, start=1)} == OFFENCE_IDS
