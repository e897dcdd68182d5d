"""The pure rules of verification: sampling rate, verdicts, penalties."""

from datetime import UTC, datetime, timedelta

import pytest

from market.domain.network import BPS, DEVNET, FALSE_WORK_OFFENCES, MAINNET, MIN_FRAUD_PENALTY_BPS, ZEN
from market.domain.verification import sampling
from market.domain.verification.sampling import DIVERGED, VerifierSanction, outvoted, sanction_for
from zoo_protocol.verification import rules
from zoo_protocol.verification.rules import Verdict, verdict

CLAIM, WRONG, OTHER = ("0x" + digit * 64 for digit in "abc")


@pytest.mark.parametrize(
    ("clean", "rate"), [(0, 2_500), (15, 2_500), (16, 1_250), (32, 625), (48, 312), (64, 200), (10**9, 200)]
)
def test_rate_halves_with_clean_work_to_floor(clean: int, rate: int) -> None:
    assert rules.sampling_rate_bps(clean, MAINNET.newcomer_sampling_bps, MAINNET.sampling_floor_bps) == rate


def test_outlier_flag_doubles_rate_regardless_of_history() -> None:
    for clean in (0, 64, 10**9):
        assert rules.sampling_rate_bps(clean, 2_500, 200, flagged=True) == 5_000
    assert rules.sampling_rate_bps(0, 2_500, 9_000, flagged=True) == 9_000
    assert rules.sampling_rate_bps(0, 8_000, 200, flagged=True) == 10_000


def test_attestation_does_not_lower_flagged_provider_rate() -> None:
    for clean in (0, 16, 10**9):
        assert rules.sampling_rate_bps(clean, 2_500, 200, attested=True, flagged=True) == 5_000


def test_rate_refuses_negative_history() -> None:
    with pytest.raises(ValueError, match="clean_units=-1"):
        rules.sampling_rate_bps(-1, 2_500, 200)


@pytest.mark.parametrize(("clean", "rate"), [(0, 1_250), (16, 625), (48, 200), (1_000, 200)])
def test_attestation_halves_rate_down_to_floor(clean: int, rate: int) -> None:
    network = MAINNET
    floor = network.sampling_floor_bps
    assert rules.sampling_rate_bps(clean, network.newcomer_sampling_bps, floor, attested=True) == rate


@pytest.mark.parametrize(
    ("verifier", "verifier_class", "expected"),
    [
        ("0xA", "class 1", True),
        ("0xA", "class 2", False),
        ("0xA", None, False),
        ("0xB", "class 1", False),
        ("0xC", "class 1", False),
    ],
)
def test_only_same_class_nodes_of_other_owners_judge(verifier: str, verifier_class: str | None, expected: bool) -> None:
    assert sampling.can_verify(verifier, verifier_class, {"0xB", "0xC"}, "class 1") is expected


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], Verdict.OPEN),
        ([CLAIM], Verdict.PASSED),
        ([WRONG], Verdict.OPEN),
        ([WRONG, CLAIM], Verdict.OPEN),
        ([WRONG, CLAIM, CLAIM], Verdict.PASSED),
        ([WRONG, CLAIM, WRONG], Verdict.OPEN),
        ([WRONG, CLAIM, WRONG, CLAIM], Verdict.PASSED),
        ([WRONG, CLAIM, WRONG, WRONG], Verdict.FAILED),
        ([WRONG, WRONG], Verdict.FAILED),
        ([WRONG, OTHER], Verdict.OPEN),
        ([WRONG, OTHER, WRONG], Verdict.FAILED),
        ([WRONG, OTHER, CLAIM], Verdict.OPEN),
        ([DIVERGED], Verdict.OPEN),
        ([DIVERGED, DIVERGED], Verdict.FAILED),
    ],
)
def test_verdict_follows_replay_results(results: list[str], expected: Verdict) -> None:
    assert verdict(CLAIM, results) is expected


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], Verdict.OPEN),
        ([WRONG], Verdict.OPEN),
        ([WRONG, OTHER], Verdict.OPEN),
        ([WRONG, CLAIM], Verdict.PASSED),
        ([WRONG, OTHER, CLAIM], Verdict.PASSED),
        ([WRONG, CLAIM, WRONG], Verdict.FAILED),
    ],
)
def test_verdict_follows_results_when_no_verifier_left(results: list[str], expected: Verdict) -> None:
    assert verdict(CLAIM, results, no_verifier_left=True) is expected


@pytest.mark.parametrize("honest", range(1, 6))
def test_honest_verifiers_are_outvoted_only_by_majority(honest: int) -> None:
    for wrong in range(1, 10):
        assert (CLAIM in outvoted([WRONG] * wrong + [CLAIM] * honest)) is (wrong >= 2 and wrong > honest)


def test_outvoting_needs_more_than_one_vote() -> None:
    assert outvoted([]) == outvoted([WRONG]) == outvoted([WRONG, CLAIM]) == outvoted([WRONG, OTHER, CLAIM]) == set()
    assert outvoted([WRONG, CLAIM, WRONG, CLAIM]) == set()
    assert outvoted([WRONG, CLAIM, CLAIM]) == {WRONG}
    assert outvoted([WRONG, OTHER, CLAIM, CLAIM]) == {WRONG, OTHER}
    assert outvoted([WRONG, DIVERGED, WRONG]) == {DIVERGED}


def test_first_wrong_result_suspends_and_second_slashes() -> None:
    warned = datetime(2026, 1, 1, tzinfo=UTC)
    day = timedelta(days=1)
    assert sanction_for(warned, None, warned) is VerifierSanction.SUSPENDED
    assert sanction_for(warned - day, warned, warned + day) is VerifierSanction.SAME_CASE
    assert sanction_for(warned, warned, warned + day) is VerifierSanction.SAME_CASE
    assert sanction_for(warned + day, warned, warned + 2 * day) is VerifierSanction.SLASHED
    assert sanction_for(warned, None, warned, copied=True) is VerifierSanction.SLASHED
    over = warned + sampling.WARNING
    assert sanction_for(warned + day, warned, over) is VerifierSanction.SLASHED
    assert sanction_for(over, warned, over + day) is VerifierSanction.SUSPENDED


def test_suspension_costs_more_than_wrong_result_pay() -> None:
    """Even a quarter of all verifiers cannot profit from one equal false result each."""
    for network in (MAINNET, DEVNET):
        stake = sampling.STAKE_COVER * ZEN
        assert sampling.stake_covers_segment(stake, ZEN)
        assert not sampling.stake_covers_segment(stake - 1, ZEN)
        pay = ZEN * network.replay_pay_bps // BPS
        missed = stake * network.base_apy_bps // BPS * network.suspension_seconds // (365 * 86_400)
        assert missed > pay * 127 // 100
        assert stake * dict(network.penalty_bps)["wrong_replay"] // BPS >= 20 * pay


def test_silence_costs_at_least_false_segment_penalty() -> None:
    for network in (MAINNET, DEVNET):
        table = dict(network.penalty_bps)
        assert table["withheld_data"] == table["incorrect_computation"]
        assert min(table[offence] for offence in FALSE_WORK_OFFENCES) >= MIN_FRAUD_PENALTY_BPS


def test_diverged_mark_equals_no_leaf() -> None:
    assert not DIVERGED.startswith("0x")  # leaves are 0x hex


def test_offences_are_rows_of_penalty_table() -> None:
    assert {name: row for row, (name, _) in enumerate(DEVNET.penalty_bps, start=1)} == sampling.OFFENCE_IDS


def test_stakes_outlast_answerable_disputes_and_proofs() -> None:
    for network in (MAINNET, DEVNET):
        terms = network.disputes
        assert terms.longest.total_seconds() < network.unbonding_seconds
        # a wrong verdict can be shown a dispute period after its committee's last second (Verdicts.proveWrongVerdict)
        assert terms.verdict_seconds + terms.period_seconds < network.unbonding_seconds
