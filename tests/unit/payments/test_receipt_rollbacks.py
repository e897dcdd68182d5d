"""Receipts of a job whose second round was rolled back to its first model's successor."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.payments.receipt_world import World
from kit.payments.rollbacks import give_up, roll_back, state_loss

from training_gym.aggregate.outer_step import initial_outer_state, save_outer_state
from training_gym.data.dataset import DatasetManifest, Split, validation_size
from zoo_compute.audit import rounds
from zoo_compute.audit.receipt import verify_job, verify_round
from zoo_compute.terminal.receipts import print_receipt
from zoo_protocol.payments.job_record import AggregationRecord

ROLLBACK_CODES = {"wrong_rollback", "wrong_aggregation", "wrong_model", "wrong_manifest"}


def test_rolled_back_checkpoint_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    roll_back(world, reason="final_loss")
    found = verify_job(world.job_id, world, world)  # type: ignore[arg-type]
    assert not ROLLBACK_CODES & {one.code for one in found.findings}
    assert found.receipt["rollbacks"] == [{"round": 2, "to": 1, "reason": "final_loss"}]
    print_receipt(found.receipt | {"ledger_reconciled": True})
    shown = capsys.readouterr().out
    assert "round 2 repeats the model after round 1: the validation loss after the last round was" in shown
    assert "Lower the learning rates" not in shown
    print_receipt(found.receipt | {"ledger_reconciled": True, "outcome": "diverged"})
    assert "Lower the learning rates or check the data." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("completed", "final"), ("diverged", "last"), ("cancelled_by_payer", "last"), ("expired", "last")],
)
def test_receipt_names_final_model_of_completed_job(
    outcome: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    receipt = verify_job(world.job_id, world, world).receipt  # type: ignore[arg-type]
    print_receipt(receipt | {"ledger_reconciled": True, "outcome": outcome})
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if "_" in line.split()[0])
    assert shown[f"{word}_model_cid"] == receipt["final_model_cid"]
    assert (shown[f"{word}_loss"], shown[f"{word}_error"]) == (str(receipt["final_loss"]), str(receipt["final_error"]))
    assert {name.partition("_")[0] for name in shown if name.endswith("_cid")} == {word}


def test_receipt_of_unmatched_job_has_no_price(capsys: pytest.CaptureFixture[str]) -> None:
    world: Any = World()
    receipt = verify_job(world.job_id, world, world).receipt
    for price, shown in ("0", "-"), (str(3 * 10**18), "3 ZEN"):
        print_receipt(receipt | {"ledger_reconciled": True, "clearing_price_wei_per_gpu_hour": price})
        assert f"price per GPU-hour  {shown}\n" in capsys.readouterr().out


def spike(world: World, round_: int = 1, loss: str = "9.000000", error: str = "0.010000") -> None:
    state_loss(world, round_, loss, error)


@pytest.mark.parametrize(
    ("reason", "fault", "is_true"),
    [
        ("loss_spike", lambda world: spike(world), True),
        ("loss_spike", lambda world: spike(world, loss="5.600000"), False),
        ("loss_spike", lambda world: spike(world, error="0.900000"), False),
        ("loss_spike", lambda world: spike(world, 2), False),
        ("loss_not_finite", lambda world: spike(world, loss="999999.000000"), True),
        ("loss_not_finite", lambda world: spike(world), False),
        ("final_loss", lambda world: None, True),
        ("diverged", lambda world: give_up(world, "lost"), True),
        ("diverged", lambda world: give_up(world, "rejected"), False),
        ("diverged", lambda world: None, False),
        ("bad_mood", lambda world: spike(world), False),
        (None, lambda world: None, False),
    ],
)
def test_reason_of_rollback_follows_from_record(
    reason: str | None, fault: Callable[[World], None], is_true: bool
) -> None:
    world = World()
    roll_back(world, to=0, reason=reason)
    fault(world)
    assert ("wrong_rollback" in world.codes()) != is_true


def roll_back_first_round(world: World, **changes: Any) -> dict[str, Any]:
    """Let the second checkpoint repeat the first, and return its files.

    ``changes`` are to the record of the second round.
    """
    before = AggregationRecord.from_bytes(world.files[world.manifest(1).aggregation or ""])
    payloads = [replace(one, verdict="rolled_back") for one in before.payloads]
    rollback = replace(before, payloads=payloads, rolled_back_to=0, rollback_reason="step_not_finite")
    outer_state = world.put(save_outer_state(world.spec, initial_outer_state(world.spec)))
    files: dict[str, Any] = {"model": world.manifest(0).model, "outer_state": outer_state, "update": None}
    world.relink(1, aggregation=world.put(rollback.to_bytes()), slot_states={}, **files)
    parent = world.record.checkpoints[1].cid
    after = AggregationRecord.from_bytes(world.files[world.manifest(2).aggregation or ""])
    world.relink(2, parent=parent, aggregation=world.put(replace(after, checkpoint=parent, **changes).to_bytes()))
    return files


@pytest.mark.parametrize("is_same", [True, False])
def test_round_without_payloads_leaves_model(is_same: bool) -> None:
    world = World()
    moved = world.manifest(2).model
    files = roll_back_first_round(world, payloads=[])
    world.relink(2, **files | ({} if is_same else {"model": moved}))
    assert (ROLLBACK_CODES & world.codes() == set()) == is_same


@pytest.mark.parametrize("begun", [0, 1], ids=["before_rollback", "after_rollback"])
def test_payload_from_before_rollback_is_found(begun: int) -> None:
    world = World()
    roll_back_first_round(world)
    *units, last = world.record.units
    last = replace(last, start_checkpoint_cid=world.record.checkpoints[begun].cid, start_slot_state_cid=None)
    world.change("record", units=[*units, last])
    assert ("wrong_aggregation" in world.codes()) == (begun == 0)
    assert "wrong_start" not in world.codes()
    last = replace(last, start_slot_state_cid=units[0].slot_state_cid)
    world.change("record", units=[*units, last])
    assert ("wrong_start" in world.codes()) == (begun == 1)


@pytest.mark.parametrize("begun", [0, 1], ids=["before_rollback", "after_rollback"])
def test_single_payload_after_rollback_is_found(begun: int) -> None:
    world = World()
    roll_back_first_round(world)
    *units, last = world.record.units
    own, other = (replace(last, start_checkpoint_cid=world.record.checkpoints[one].cid) for one in (1, begun))
    other = replace(other, slot=1, status="lost")
    world.change("record", units=[*units, replace(own, start_slot_state_cid=None), other])
    assert ("wrong_aggregation" in world.codes()) == (begun == 0)


@pytest.mark.parametrize("begun", [0, 1], ids=["before_rollback", "after_rollback"])
def test_units_of_second_rollback_follow_first(begun: int) -> None:
    world = World()
    roll_back_first_round(world)
    roll_back(world, to=0, reason="diverged")
    give_up(world, "lost", begun)
    assert ("wrong_rollback" in world.codes()) == (begun == 0)


@pytest.mark.parametrize(("reason", "is_counted"), [("step_not_finite", True), ("final_loss", False)])
def test_rollback_of_final_model_is_not_counted(monkeypatch: pytest.MonkeyPatch, reason: str, is_counted: bool) -> None:
    monkeypatch.setattr(rounds, "MAX_ROLLBACKS", 1)
    world = World()
    roll_back_first_round(world)
    roll_back(world, to=0, reason=reason)
    assert ("wrong_rollback" in world.codes()) == is_counted


class Losses:
    """Loss function; the final model is replaced by the one before.

    Attributes:
        samples: those of each evaluation of the replaced model.
    """

    def __init__(self, world: World, replaced: float, error: float = 0.001) -> None:
        final, best = (world.files[world.manifest(round_).model] for round_ in (2, 1))
        self._by_model = {final: (replaced, error), best: (3.0, 0.008)}
        self._final, self.samples = final, list[int]()

    def __call__(self, spec: bytes, model: bytes, validation: Split, samples: int) -> tuple[float, float]:
        if model == self._final:
            self.samples.append(samples)
        return self._by_model.get(model, (5.5, 0.01))


@pytest.mark.parametrize(
    ("replaced", "is_worse"), [(float("inf"), True), (3.031, True), (3.02995, True), (3.029, False), (2.9, False)]
)
def test_replaced_final_model_is_worse(replaced: float, is_worse: bool) -> None:
    """3.03 is a hundredth above the delivered model's loss."""
    world = World()
    loss = Losses(world, replaced)
    roll_back(world, reason="final_loss")
    assert world.codes(loss) == (set() if is_worse else {"wrong_rollback"})


def test_replaced_final_model_is_evaluated_as_market_does() -> None:
    world = World()
    loss = Losses(world, 3.2, error=0.1)
    roll_back(world, reason="final_loss")
    size = validation_size(world.spec, DatasetManifest.from_bytes(world.files[world.spec.dataset]))
    assert world.codes(loss) == set()
    assert loss.samples == [*(256 << doubled for doubled in range(20) if 256 << doubled < size), size]


@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "unchecked"])
def test_repeated_place_is_found(is_joined: bool) -> None:
    """A join of fewer payloads than the record lists would show nothing."""
    world = World()
    loss = Losses(world, 2.9)
    record = AggregationRecord.from_bytes(world.files[world.manifest(2).aggregation or ""])
    world.relink(2, aggregation=world.put(replace(record, payloads=record.payloads * 2).to_bytes()))
    assert world.codes() == {"wrong_aggregation"}
    roll_back(world, reason="final_loss")
    assert world.codes(loss if is_joined else None) == {"wrong_aggregation"}


def test_replaced_final_model_needs_payloads() -> None:
    world: Any = World()
    loss = Losses(world, 2.9)
    roll_back(world, reason="final_loss")
    del world.files[world.record.units[2].payload_cid or ""]
    assert world.codes(loss) == {"unresolvable"}
    assert verify_round(world.job_id, 1, world, world).findings == []


@pytest.mark.parametrize(
    "forged",
    [{"model": "wrong"}, {"to": 2}, {"verdict": "included"}, {"outer_state": None}, {"update": "wrong"}],
    ids=["other_model", "later_round", "verdict", "outer_state", "update"],
)
def test_forged_rollback_is_found(forged: dict[str, Any]) -> None:
    world = World()
    wrong = {name: getattr(world.manifest(2), name) for name, value in forged.items() if value == "wrong"}
    roll_back(world, **(forged | wrong))
    assert "wrong_rollback" in world.codes()
