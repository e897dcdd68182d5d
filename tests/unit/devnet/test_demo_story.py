"""Checks of the demonstration's result, and its built-in dataset."""

from pathlib import Path

import pytest
from kit.nodes.demo_training import TRAINING

from zoo_compute.base.errors import Mismatch
from zoo_compute.demo.run import ROUNDS, check_story, topics_dataset


def test_dataset_is_built_in_help_with_disjoint_splits(tmp_path: Path) -> None:
    request = topics_dataset(tmp_path)
    train, validation = (Path(*sources).read_bytes() for sources in (request.sources, request.validation))
    assert 1_000 < len(train) < len(validation)
    assert validation[:1_000] not in train
    assert train[:1_000] not in validation
    assert b'The "assert" statement' in train


CHECKPOINTS = ROUNDS + 1
CHEAT, HONEST = "0x" + "c0" * 20, "0x" + "a0" * 20
SLASH = {"provider": CHEAT, "path": "dispute"}
UNIT = {"provider": HONEST, "round": 0, "slot": 0, "paid_wei": "190"}
RECEIPT: dict[str, object] = {
    **{"budget_wei": "1000", "escrowed_wei": "1000", "paid_wei": "190", "fee_wei": "10", "refund_wei": "800"},
    "units": [UNIT, UNIT | {"provider": CHEAT, "slot": 3, "paid_wei": "0"}],
    "slashes": [SLASH],
    "story": {"honest": {"slashed": []}},
    "training": TRAINING,
    "checkpoints": [{"pins": ["a", "b", "c"]}] * CHECKPOINTS,
    "initial_loss": 5.5,
    "final_loss": 2.5,
    "final_error": 0.007,
    "ledger_reconciled": True,
}


def test_valid_receipt_passes() -> None:
    check_story(RECEIPT, adversary=CHEAT)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"refund_wei": "801"}, "paid \\+ fee \\+ refund"),
        ({"budget_wei": "999"}, "escrowed <= budget"),
        ({"fee_wei": "5", "refund_wei": "805"}, "fee == 5 %"),
        ({"slashes": []}, "only the dishonest provider.*a committee decided"),
        ({"slashes": [SLASH | {"provider": HONEST}]}, "only the dishonest provider"),
        ({"slashes": [SLASH, SLASH | {"provider": HONEST}]}, "only the dishonest provider"),
        ({"slashes": [SLASH | {"path": "operator"}]}, "a committee decided"),
        ({"story": {"honest": {"slashed": [HONEST]}}}, "no other node ever lost stake"),
        ({"units": [UNIT | {"provider": CHEAT}]}, "false work is not paid"),
        ({"checkpoints": [{"pins": ["a", "a", "b"]}] * CHECKPOINTS}, "pinned on 3 nodes"),
        ({"checkpoints": [{"pins": ["a", "b", "c"]}] * (CHECKPOINTS - 1)}, "every round"),
        ({"final_loss": 5.4}, "the loss fell"),
        ({"final_error": 0.008}, "the final loss is known"),
        ({"ledger_reconciled": False}, "the ledger equals the chain"),
        ({"training": TRAINING | {"late": None}}, "came late"),
    ],
)
def test_demo_with_broken_expectation_fails(change: dict[str, object], named: str) -> None:
    with pytest.raises(Mismatch, match=named):
        check_story(RECEIPT | change, adversary=CHEAT)
