"""The demonstration's report on its dishonest provider."""

from typing import Any

from zoo_compute.demo import dispute_report

CHEAT, HONEST, OTHER = ("0x" + digit * 40 for digit in "123")
REFEREES = ["0x" + digit * 40 for digit in "456"]
ZEN = 10**18
TXS = ["0x" + digit * 64 for digit in "789abc"]
EVENTS = ("WindowCommitted", "DisputeOpened", "TraceShown", "StepNamed", "CommitteeDrawn", "VerdictGiven")

STORY: dict[str, Any] = {
    "cheat": CHEAT,
    "attack": dispute_report.FABRICATED,
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
