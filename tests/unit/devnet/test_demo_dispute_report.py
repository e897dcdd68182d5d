"""The demonstration's expectations of its dishonest provider, and their texts."""

import copy
from typing import Any

import pytest
from kit.nodes.demo_training import TRAINING

from zoo_compute.base.errors import Mismatch
from zoo_compute.demo import dispute_report, run

CHEAT, HONEST, OTHER = ("0x" + digit * 40 for digit in "123")
REFEREES = ["0x" + digit * 40 for digit in "456"]
ZEN = 10**18
TXS = ["0x" + digit * 64 for digit in "789abc"]
EVENTS = ("WindowCommitted", *dispute_report.STEPS)

STORY: dict[str, Any] = {
    "cheat": CHEAT,
    "unit": {"round": 0, "slot": 3, "steps": 24, "slot_went_to": [OTHER]},
    "noticed": {
        "segment": 2,
        "first_step": 13,
        "last_step": 18,
        "claimed": "0x" + "cc" * 32,
        "computed": ["0x" + "dd" * 32],
        "verifiers": REFEREES[:2],
        "evidence_cid": "bafy",
    },
    "dispute_id": "0x" + "ee" * 32,
    "chain": [{"event": event, "what": "what it is", "tx": tx} for event, tx in zip(EVENTS, TXS, strict=True)],
    "committee": REFEREES,
    "verdicts": [{"referee": one, "provider_correct": False, "reason": "step_false"} for one in REFEREES[1:]],
    "cost": {
        "lost_wei": str(500 * ZEN),
        "left_wei": str(500 * ZEN),
        "bond_returned_wei": str(100 * ZEN),
        "to_challenger_wei": str(50 * ZEN),
        "to_referees_wei": {one: str(10 * ZEN) for one in REFEREES[1:]},
        "burned_wei": str(430 * ZEN),
        "units_unpaid": 2,
    },
    "honest": {
        "slashed": [],
        "stakes_wei": {address: str(ZEN) for address in (HONEST, OTHER, *REFEREES)},
        "paid_wei": {HONEST: str(ZEN), OTHER: str(2 * ZEN)},
    },
}
RECEIPT: dict[str, Any] = {
    **{"budget_wei": "100", "escrowed_wei": "100", "paid_wei": "95", "fee_wei": "5", "refund_wei": "0"},
    "initial_loss": 5.5,
    "final_loss": 1.7,
    "slashes": [{"provider": CHEAT, "path": "dispute"}],
    "units": [
        {"provider": CHEAT, "round": 0, "slot": 3, "paid_wei": "0"},
        {"provider": HONEST, "round": 0, "slot": 0, "paid_wei": "95"},
    ],
    "checkpoints": [{"pins": ["a", "b", "c"]}] * (run.ROUNDS + 1),
    "ledger_reconciled": True,
    "story": STORY,
    "training": TRAINING,
}


def test_report_names_all_parties_transactions_and_amounts() -> None:
    report = dispute_report.format_report(STORY)
    unwrapped = " ".join(report.split())
    assert all(text in report for text in (CHEAT, *TXS, *REFEREES, STORY["dispute_id"], OTHER))
    assert "13 to 18" in unwrapped
    assert "lost 500 ZEN of its stake and has 500 ZEN left" in unwrapped
    assert (
        "50 ZEN cover the market's costs, 20 ZEN pay the referees with a signature, and 430 ZEN are burned" in unwrapped
    )
    assert "had not signed yet" in report
    assert "None of the 2 honest providers and 3 verifiers lost any stake" in unwrapped
    assert "earned 3 ZEN" in unwrapped


def test_demo_with_kept_expectations_passes() -> None:
    run.check_story(RECEIPT, adversary=CHEAT)


@pytest.mark.parametrize(
    ("path", "value", "promise"),
    [
        (("slashes", 0, "path"), "operator", "a committee decided, on chain"),
        (("slashes", 0, "provider"), HONEST, "only the dishonest provider is slashed"),
        (("slashes",), [], "a committee decided, on chain"),
        (("story", "honest", "slashed"), [HONEST], "no other node ever lost stake"),
        (("units", 0, "paid_wei"), "1", "the dishonest provider is not paid"),
    ],
)
def test_broken_expectation_is_named(path: tuple[str | int, ...], value: object, promise: str) -> None:
    receipt: Any = copy.deepcopy(RECEIPT)
    *way, last = path
    place = receipt
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(Mismatch) as broken:
        run.check_story(receipt, adversary=CHEAT)
    assert promise in broken.value.detail
