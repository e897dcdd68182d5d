"""Pure rules of missing and late answers: reasons, days, and weights in a score."""

from datetime import UTC, datetime, timedelta

import pytest

from market.domain.lifecycle import NODE_SILENT, NODE_STOPPING, REPLAY_OVERDUE
from market.domain.network import FALSE_WORK_OFFENCES
from market.domain.nodes.reliability import DEMOTION_BPS, NEWCOMER_BPS, Evidence, reliability_bps
from market.domain.verification import late_states
from market.domain.verification.late_states import LatenessOutcome, lateness_outcome, offence_for_missing_state
from market.domain.verification.sampling import Fault, fault_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_reveal_time_is_extended_by_its_own_length() -> None:
    due_at = NOW + timedelta(seconds=130)
    assert late_states.final_deadline(NOW, due_at, 0) == NOW + timedelta(seconds=260)
    assert late_states.final_deadline(NOW, due_at, 43_200) == NOW + timedelta(hours=12)


def test_refusal_has_own_offence_at_silence_penalty() -> None:
    assert offence_for_missing_state(None) == "withheld_data"
    assert offence_for_missing_state("input_missing") == "refused_data"
    assert {"withheld_data", "refused_data"} < {*FALSE_WORK_OFFENCES}


@pytest.mark.parametrize(
    ("days", "found"),
    [
        ([], None),
        ([1, 2], None),
        ([3, 1, 2], (1, 2, 3)),
        ([1, 15, 30], (1, 15, 30)),  # the thirtieth day, counted with the first
        ([1, 15, 31], None),
        ([1, 2, 40, 41, 42, 43], (40, 41, 42)),
        ([1, 20, 31, 49], (20, 31, 49)),
    ],
)
def test_third_day_within_thirty_is_violation(days: list[int], found: tuple[int, ...] | None) -> None:
    assert late_states.violation(days) == found


def test_late_state_counts_daily_for_verified_unjailed_units() -> None:
    assert lateness_outcome(verified=True, jailed=False, same_day=False) is LatenessOutcome.COUNTED
    assert lateness_outcome(verified=True, jailed=False, same_day=True) is LatenessOutcome.SAME_DAY
    assert lateness_outcome(verified=True, jailed=True, same_day=False) is LatenessOutcome.PROVIDER_JAILED
    assert lateness_outcome(verified=False, jailed=True, same_day=True) is LatenessOutcome.UNIT_REJECTED


@pytest.mark.parametrize(
    ("reason", "gave_up", "committed", "fault"),
    [
        ("gateway_unavailable", True, False, Fault.REFUSED),
        (NODE_STOPPING, True, False, Fault.REFUSED),
        (NODE_SILENT, False, False, Fault.SILENT),
        (REPLAY_OVERDUE, False, False, Fault.SILENT),
        (NODE_SILENT, False, True, Fault.WITHHELD),
        (REPLAY_OVERDUE, False, True, Fault.WITHHELD),
        (NODE_STOPPING, True, True, Fault.WITHHELD),  # otherwise stopping would be a way to withhold
        ("provider_jailed", False, False, None),
        ("job_ended", False, True, None),
    ],
)
def test_verifier_fault_follows_reason_and_commitment(
    reason: str, gave_up: bool, committed: bool, fault: Fault | None
) -> None:
    assert fault_of(reason, gave_up=gave_up, committed=committed) is fault


def test_refusal_costs_least_and_withheld_result_most() -> None:
    scores = [reliability_bps({0: Evidence(**{column: 1})}) for column in ("refused", "lost", "rejected")]
    assert scores == [128_000 // 17, 128_000 // 18, 128_000 // 24]


@pytest.mark.parametrize(("column", "last"), [("refused", 16), ("lost", 8), ("rejected", 2)])
def test_new_verifier_allowance_precedes_deprioritisation(column: str, last: int) -> None:
    assert NEWCOMER_BPS > reliability_bps({0: Evidence(**{column: last})}) >= DEMOTION_BPS
    assert reliability_bps({0: Evidence(**{column: last + 1})}) < DEMOTION_BPS
    assert reliability_bps({31: Evidence(**{column: last + 1})}) > DEMOTION_BPS  # and recovers
