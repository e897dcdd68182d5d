"""The decider of refuted units, with a reason for each undecidable case."""

from dataclasses import replace
from typing import Any

import pytest

from market.domain.network import DEVNET, MAINNET
from market.domain.verification.dispute_routes import MAX_SEGMENTS, Case, DecidedBy, Reason, Route, is_replayable, route
from market.domain.verification.sampling import OFFENCE_IDS

TERMS = MAINNET.disputes
CASE = Case(
    offence="incorrect_computation",
    segments=4,
    disputed_before=False,
    seconds_left=TERMS.turn_seconds + 1,
    referees=TERMS.seats,
    of_class=TERMS.seats,
    balance_wei=TERMS.bond_wei,
)


def test_committee_decides_at_minimum_size() -> None:
    assert route(CASE, TERMS) == Route(DecidedBy.DISPUTE)
    assert route(replace(CASE, segments=MAX_SEGMENTS), TERMS) == Route(DecidedBy.DISPUTE)
    assert route(replace(CASE, referees=20, of_class=13), TERMS) == Route(DecidedBy.DISPUTE)


def test_three_devnet_verifiers_form_committee() -> None:
    assert route(replace(CASE, referees=3, of_class=3), DEVNET.disputes) == Route(DecidedBy.DISPUTE)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offence": "withheld_data"}, Reason.NOT_REPLAYABLE),
        ({"segments": MAX_SEGMENTS + 1}, Reason.TOO_MANY_SEGMENTS),
        ({"disputed_before": True}, Reason.DISPUTED_BEFORE),
        ({"seconds_left": TERMS.turn_seconds}, Reason.PERIOD_OVER),
        ({"seconds_left": -1}, Reason.PERIOD_OVER),
        ({"referees": TERMS.seats - 1}, Reason.TOO_FEW_REFEREES),
        ({"of_class": TERMS.quorum}, Reason.TOO_FEW_OF_CLASS),
        ({"referees": 20, "of_class": 12}, Reason.TOO_FEW_OF_CLASS),
        ({"of_class": 0}, Reason.TOO_FEW_OF_CLASS),
        ({"balance_wei": TERMS.bond_wei - 1}, Reason.BOND_MISSING),
    ],
)
def test_operator_decides_with_reason_when_committee_cannot(changes: dict[str, Any], reason: Reason) -> None:
    assert route(replace(CASE, **changes), TERMS) == Route(DecidedBy.OPERATOR, reason)


def test_only_false_step_can_be_replayed() -> None:
    assert [offence for offence in OFFENCE_IDS if is_replayable(offence)] == ["incorrect_computation"]
