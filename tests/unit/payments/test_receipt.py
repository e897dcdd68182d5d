"""Verification of receipts: none for an honest settlement, one for each falsification.

The chain and the gateway are in memory, so that each can answer falsely.
The demo's test runs the same verification against a real chain and real storage.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.base_models import manifest_of, write_base
from kit.payments.receipt_world import (
    BUDGET,
    CHEAT,
    FEE_BPS,
    HONEST,
    LOSSES,
    OTHER_JOB,
    PAYER,
    PRICE,
    SEED,
    TREASURY,
    VERIFIERS,
    WEIGHT,
    World,
)
from kit.training import TEXT, TINY

from training_gym.compress.link_adaptation import top_k_levels
from training_gym.data.dataset import one_shard
from training_gym.evaluate.extent import MAX_WINDOWS
from training_gym.evaluate.loss import evaluate
from training_gym.evaluate.sums import LossSums
from training_gym.model.base import completed_settings
from training_gym.model.folder import ModelManifest, load_files
from training_gym.spec.adapters import PREFIX
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import load_state
from zoo_compute.audit.losses import LOSS_TOLERANCE
from zoo_compute.audit.receipt import differences, verify_job, verify_round
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.settlements import Penalty
from zoo_compute.content.base_models import BaseFiles
from zoo_compute.terminal.receipts import model_loss
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.payments import receipt as settled_receipt
from zoo_protocol.payments.receipt import JobSettlement, unit_price


def balanced(receipt: dict[str, Any]) -> tuple[int, int]:
    """Return pay and fee of a receipt that balances and pays only its first unit."""
    paid, fee, refund, escrowed = (int(receipt[f"{name}_wei"]) for name in ("paid", "fee", "refund", "escrowed"))
    assert paid + fee + refund == escrowed
    assert [unit["paid_wei"] for unit in receipt["units"]] == [str(paid // 2), "0", str(paid // 2)]
    return paid, fee


def test_honest_settlement_has_no_finding_and_balances() -> None:
    world: Any = World()
    first = world.files[world.record.checkpoints[0].model_cid]
    found = verify_job(
        world.job_id, world, world, lambda _spec, model, *_: (5.5, 0.01) if model == first else (3.0, 0.008), None
    )
    assert found.findings == []
    paid, fee = balanced(found.receipt)
    assert fee == (paid + fee) * FEE_BPS // 10_000
    verified = found.receipt["units"][0]
    assert (verified["sampling_bps"], len(verified["drawn_segments"])) == (2_500, 1)
    assert verified["detection_probability"] == 0.25  # one of four segments


def test_unit_forfeited_after_batch_is_unpaid_and_balances() -> None:
    world: Any = World()
    paid = world.settlement(world.job_id)
    first, _, second = world.record.units
    keys = SEED, world.leaf(first), world.leaf(second)
    other, *its_own = (("UnitStruck", {"unitId": key}, "0x") for key in keys)
    for events, is_paid in (([], True), ([other], True), ([other, *its_own], False)):
        forfeited = JobSettlement.from_events(events).struck
        found = settled_receipt.build_receipt(world.record, world.on_open, replace(paid, struck=forfeited), [], {}, 0)
        assert [amount > 0 for amount in balanced(found)] == [is_paid, is_paid]


def test_committee_penalty_matches_upheld_dispute() -> None:
    world: Any = World()
    assert world.codes() == set()
    world.by_dispute()
    found = verify_job(world.job_id, world, world)
    assert found.findings == []
    assert [(slash["path"], slash["path_reason"]) for slash in found.receipt["slashes"]] == [("dispute", None)]
    key, tx = world.upheld
    for upheld, code in ((None, "not_convicted"), ((SEED, tx), "wrong_dispute"), ((key, SEED), "wrong_dispute")):
        world.upheld = upheld
        assert world.codes() == {code}


def reject_honest(world: World) -> None:
    """Reject the second paid unit without a penalty, and return its price to the payer."""
    net, fee, gross = world.on_settle.paid // 2, world.on_settle.fee // 2, unit_price(PRICE, WEIGHT)
    *others, honest = world.record.units
    world.change("record", units=[*others, replace(honest, status="rejected", reason="incorrect_computation")])
    world.change("on_settle", units=1, paid=net, fee=fee, refund=BUDGET - gross)
    world.change("posted", net=2 * net, fee=2 * fee, claimed={HONEST.address: net}, fee_collected=2 * fee)
    world.moved = {PAYER.address: BUDGET - gross}


def invent_start(world: World) -> None:
    one, two, three = (cid_of_file(name) for name in (b"state", b"restored", b"eager"))
    world.change_unit(start_slot_state_cid=one, start_restored_payload_cid=two, start_eager_payload_cid=three, top_k=1)


def move_signature(world: World) -> None:
    """Show the result of another segment as that of the drawn one."""
    [segment] = world.record.units[0].drawn_segments
    world.replayed(VERIFIERS[0], segment=(segment + 1) % 4)
    [moved] = world.record.units[0].replays
    world.change_unit(replays=[replace(moved, segment=segment)])


FORGED: list[tuple[str, Callable[[World], None]]] = [
    # The seven that a check of money, windows and draws alone does not find.
    ("wrong_model", lambda w: w.relink(2, model=w.record.checkpoints[0].model_cid)),
    ("sampled_too_little", lambda w: w.sampled_at(200)),
    ("only_tolerated", lambda w: w.change_unit(tolerated_segments=w.record.units[0].drawn_segments)),
    ("wrong_start", invent_start),
    ("rejected_without_reason", reject_honest),
    ("unit_left_out", lambda w: w.leave_out_cheat()),
    ("checkpoint_left_out", lambda w: w.leave_out_checkpoint()),
    # More of their kinds.
    ("unsigned_result", lambda w: w.replayed()),
    ("unsigned_result", lambda w: w.replayed(*VERIFIERS, end_leaf=SEED, verdict="refuted")),
    ("unsigned_result", lambda w: w.change_unit(tolerated_segments=w.record.units[0].drawn_segments)),
    ("foreign_signature", move_signature),
    ("foreign_signature", lambda w: w.change_unit(replays=w.record.units[2].replays)),
    ("repeated_verifier", lambda w: w.replayed(VERIFIERS[0], VERIFIERS[0])),
    ("interested_verifier", lambda w: w.replayed(HONEST)),
    ("interested_verifier", lambda w: w.replayed(PAYER)),
    ("unstaked_verifier", lambda w: w.staked.clear()),
    ("wrong_verdict", lambda w: w.replayed(VERIFIERS[0], verdict="refuted")),
    ("wrong_verdict", lambda w: w.replayed(VERIFIERS[0], end_leaf=SEED, verdict="tolerated")),
    ("wrong_trace", lambda w: w.change_unit(leaves=[])),
    ("wrong_replay", lambda w: w.change_unit(drawn_segments=[])),
    ("unit_left_out", lambda w: w.change("record", slashes=[])),
    ("unit_left_out", lambda w: w.leave_out_cheat(by_dispute=True)),
    ("checkpoint_left_out", lambda w: w.change("record", checkpoints=w.record.checkpoints[:2])),
    ("wrong_manifest", lambda w: w.relink(2, parent=w.record.checkpoints[0].cid)),
    ("wrong_manifest", lambda w: w.relink(2, job_id=OTHER_JOB)),
    ("wrong_manifest", lambda w: w.relink(2, aggregation=None)),
    ("wrong_aggregation", lambda w: w.relink(2, aggregation=w.manifest(1).aggregation)),
    ("wrong_start", lambda w: w.change_unit(start_eager_payload_cid=w.record.units[0].payload_cid)),
    ("wrong_payload", lambda w: w.change_unit(top_k=top_k_levels(w.spec)[1])),
    # Money, order, windows, draws and files.
    ("wrong_payment", lambda w: w.change_unit(status="rejected")),
    ("wrong_payment", lambda w: w.change("posted", claimed={CHEAT.address: 1})),
    ("wrong_batch", lambda w: setattr(w, "posted_root", SEED)),
    ("wrong_batch", lambda w: setattr(w, "batch_units", [w.as_paid(w.record.units[1]), w.paid()[1]])),
    ("wrong_batch", lambda w: setattr(w, "batch_units", w.paid()[:1])),
    ("wrong_batch", lambda w: w.change("other_part", paid=w.other_part.paid - 1)),
    ("wrong_batch", lambda w: w.change("posted", net=w.posted.net + 1)),
    ("wrong_batch", lambda w: w.change_unit(status="rejected")),
    ("wrong_units", lambda w: w.change("on_settle", units=3)),
    ("wrong_fee", lambda w: w.change("posted", fee_collected=w.posted.fee + 1)),
    ("sampled_too_little", lambda w: w.change_unit(sampling_bps=199)),
    ("bad_record", lambda w: w.change_unit(sampling_bps=10_001)),
    ("bad_record", lambda w: w.change("record", segments=0)),
    ("bad_record", lambda w: w.change("record", segments=2**16)),
    ("bad_record", lambda w: w.change("record", order={})),
    ("wrong_segments", lambda w: w.have_fewer_segments()),
    ("paid_twice", lambda w: w.change("record", units=[w.record.units[0]] * 2)),
    ("no_commitment", lambda w: w.change_unit(salt=None)),
    ("wrong_start", lambda w: w.change_unit(start_checkpoint_cid=w.record.checkpoints[1].cid)),
    ("wrong_loss", lambda w: w.change("record", checkpoints=[])),
    ("wrong_evidence", lambda w: w.change("record", slashes=[replace(w.record.slashes[0], evidence_cid="none")])),
    ("wrong_fee", lambda w: w.change("on_settle", fee=w.on_settle.fee - 1)),
    ("wrong_refund", lambda w: w.change("on_settle", refund=w.on_settle.refund + 1)),
    ("wrong_transfers", lambda w: w.change("other_part", refund=1)),
    ("wrong_transfers", lambda w: w.moved.update({TREASURY: 1})),
    ("wrong_deposit", lambda w: setattr(w, "deposit", BUDGET - 1)),
    ("wrong_price", lambda w: w.change("on_settle", price=PRICE - 10**15)),
    ("price_above_maximum", lambda w: w.change("on_open", max_price=PRICE - 1)),
    ("wrong_order", lambda w: w.record.order.update(budget=str(2 * BUDGET))),
    ("foreign_signature", lambda w: w.change("on_open", payer=CHEAT.address)),
    ("foreign_signature", lambda w: w.change_unit(commitment_signature=w.record.units[1].commitment_signature)),
    ("foreign_signature", lambda w: w.change_unit(commitment_signature=w.with_v_of_0_or_1())),
    ("no_commitment", lambda w: w.change_unit(commitment_signature=None)),
    ("wrong_payload", lambda w: w.change_unit(salt=SEED)),
    ("wrong_window", lambda w: w.change("on_chain", root=SEED)),
    ("not_in_window", lambda w: w.change_unit(window_index=1)),
    ("paid_unverified", lambda w: w.change("on_chain", seed=None)),
    ("wrong_draw", lambda w: w.change_unit(drawn_segments=[])),
    ("wrong_tolerated", lambda w: w.change_unit(tolerated_segments=[9])),
    ("not_slashed", lambda w: setattr(w, "slashed", None)),
    ("wrong_slash", lambda w: w.change("slashed", provider=HONEST.address)),
    ("unresolvable", lambda w: w.files.pop(w.record.checkpoints[1].cid) and None),
    ("wrong_loss", lambda w: w.change("record", final_loss="1.000000")),
    ("wrong_loss", lambda w: w.change("record", initial_loss="1.000000")),
    ("wrong_loss", lambda w: w.hide_loss(0)),
    ("wrong_loss", lambda w: w.hide_loss(2)),
    ("wrong_model", lambda w: w.change("record", final_model_cid="other")),
]


@pytest.mark.parametrize(("code", "forge"), FORGED, ids=[f"{i}-{code}" for i, (code, _) in enumerate(FORGED)])
def test_every_falsification_is_found(code: str, forge: Callable[[World], None]) -> None:
    world = World()
    forge(world)
    assert code in world.codes()


@pytest.mark.parametrize("spec", [b"\xff", b"[]", b"{}", b'{"training_config": [], "data_config": {}}', b"[" * 100_000])
def test_malformed_specification_is_found(spec: bytes) -> None:
    world = World()
    world.change("record", spec_cid=world.put(spec))
    assert world.codes(lambda *_: (5.5, 0.01)) == {"wrong_spec"}


def test_wrong_loss_is_found() -> None:
    assert "wrong_loss" in World().codes(lambda *_: (4.2, 0.01))


@pytest.mark.parametrize(
    ("precision", "distance", "found"),
    [("bfloat16", 0.0007, set()), ("bfloat16", 0.0009, {"wrong_loss"}), ("float32", 0.0007, {"wrong_loss"})],
)
def test_rounded_losses_differ_by_class(precision: str, distance: float, found: set[str]) -> None:
    """A tenth of the standard error, 0.008, is allowed."""
    spec = World().spec
    spec = replace(spec, training=replace(spec.training, precision=precision))
    world = World(lambda world: replace(spec, dataset=world.dataset()))
    first = world.files[world.record.checkpoints[0].model_cid]
    assert world.codes(lambda _spec, model, *_: (5.5, 0.01) if model == first else (3 + distance, 0.008)) == found


@pytest.mark.parametrize(
    ("error", "samples", "code"), [("0.010000", 4, "few_samples"), ("0.008000", 9999, "wrong_loss")]
)
def test_wrong_number_of_samples_is_found(error: str, samples: int, code: str) -> None:
    world = World(losses=(LOSSES[0], (LOSSES[1][0], error, samples)))
    first = world.files[world.record.checkpoints[0].model_cid]
    assert world.codes(lambda _spec, model, *_: (5.5, 0.01) if model == first else (3.0, float(error))) == {code}


def test_infinite_loss_agrees_with_largest_stated_one() -> None:
    world = World(losses=(LOSSES[0], ("999999.000000", "0.000000", 4)))
    first = world.files[world.record.checkpoints[0].model_cid]
    assert world.codes(lambda _spec, model, *_: (5.5, 0.01) if model == first else (2.0**60, 0.0)) == set()


@pytest.mark.parametrize(("error", "found"), [("0.000030", set()), ("0.000031", {"few_samples"})])
def test_rounding_of_stated_error_is_no_finding(error: str, found: set[str]) -> None:
    world = World(losses=(LOSSES[0], ("0.009900", error, 4)))  # an error of 0.0000296 is small enough
    first = world.files[world.record.checkpoints[0].model_cid]
    assert world.codes(lambda _spec, model, *_: (5.5, 0.01) if model == first else (0.0099, float(error))) == found


@pytest.mark.parametrize(("error", "found"), [(0.02, set()), (0.0, {"wrong_loss"})])
def test_false_record_moves_first_loss_within_bounds(error: float, found: set[str]) -> None:
    spec = replace(World().spec, replicas=3, validation_samples=2)
    world = World(lambda world: replace(spec, dataset=world.dataset()), (("5.500000", "0.010000", 6), LOSSES[1]))
    first = world.files[world.record.checkpoints[0].model_cid]
    codes = world.codes(lambda _spec, model, *_: (4.9, error) if model == first else (3.0, 0.008))
    assert "wrong_loss" not in world.codes(lambda _spec, model, *_: (5.4, error) if model == first else (3.0, 0.008))
    assert codes & {"wrong_loss"} == found


@pytest.mark.parametrize(("error", "found"), [(0.01, set()), (0.12, {"few_samples"})])
def test_false_error_of_first_loss_is_found(error: float, found: set[str]) -> None:
    """Records of few samples count as long as their error is small."""
    spec = replace(World().spec, replicas=3, validation_samples=2)
    world = World(lambda world: replace(spec, dataset=world.dataset()), (("5.500000", "0.000001", 6), LOSSES[1]))
    first = world.files[world.record.checkpoints[0].model_cid]
    codes = world.codes(lambda _spec, model, *_: (5.5, error) if model == first else (3.0, 0.008))
    assert codes & {"few_samples"} == found


@pytest.mark.parametrize(("loss", "found"), [(3.2, set()), (1.0, {"wrong_loss"})])
def test_last_loss_of_stopped_job_is_recomputed(loss: float, found: set[str]) -> None:
    first = World().spec
    spec = replace(first, validation_samples=2, training=replace(first.training, rounds=3))
    world = World(lambda world: replace(spec, dataset=world.dataset()), (LOSSES[0], ("3.000000", "0.100000", 2)))
    model = world.files[world.record.checkpoints[0].model_cid]
    codes = world.codes(lambda _spec, file, *_: (5.5, 0.01) if file == model else (loss, 0.02))
    assert codes & {"wrong_loss"} == found


def test_record_without_models_needs_no_data() -> None:
    world = World()
    none = {"units": [], "checkpoints": [], "initial_loss": None, "final_loss": None, "final_model_cid": None}
    world.record = replace(world.record, outcome="cancelled_by_payer", **none)
    del world.files[world.spec.dataset]
    of_models = {"checkpoint_left_out", "missing", "unresolvable", "wrong_dataset", "wrong_loss", "wrong_model"}
    assert not world.codes(lambda *_: (1.0, 0.1)) & of_models


@pytest.fixture
def on_base(tmp_path: Path) -> Callable[[World], TrainingSpec]:
    """Return a function that stores a base and returns the specification of an adapter on it."""
    write_base(tmp_path)

    def stored(world: World) -> TrainingSpec:
        manifest = manifest_of(tmp_path, world.put)
        settings = {"base": world.put(manifest.to_bytes()), "sequence_length": TINY.sequence_length}
        document = {
            "model_config": completed_settings(settings, manifest),
            "adapter_config": {"r": 2, "lora_alpha": 64.0},
            "data_config": {"dataset": world.dataset()},
            "training_config": {"rounds": 2, "inner_steps": 4, "segment_steps": 1, "warmup_steps": 1},
        }
        return TrainingSpec.from_dict(document)

    return stored


def merged_losses(world: World, folder: Path) -> tuple[LossSums, LossSums]:
    """Return the losses of the first and the last model, the adapter added into whole matrices."""
    spec, whole = world.spec, replace(world.spec, adapter=None)
    base = dict(load_files(TINY, {"model.safetensors": folder / "model.safetensors"}))
    merged = dict(base)
    adapter = load_state(spec, world.files[world.record.final_model_cid or ""])
    for name, down in adapter.items():
        if name.endswith(".lora_A.weight"):
            up = adapter[name.replace(".lora_A.", ".lora_B.")]
            layer = name.removeprefix(PREFIX).replace(".lora_A.", ".")
            merged[layer] = base[layer] + np.float32(64 / 2) * (up @ down)
    held = one_shard(whole, TEXT)
    return evaluate(whole, base, held, MAX_WINDOWS), evaluate(whole, merged, held, MAX_WINDOWS)


def test_adapter_losses_are_recomputed_on_base(on_base: Callable[[World], TrainingSpec], tmp_path: Path) -> None:
    first, final = merged_losses(World(on_base), tmp_path)
    assert abs(first.loss - final.loss) > 10 * LOSS_TOLERANCE
    stated = [(f"{one.loss:.6f}", f"{one.error:.6f}", one.samples) for one in (first, final)]
    world: Any = World(on_base, (stated[0], stated[1]))
    with BaseFiles(world) as bases:
        loss = partial(model_loss, bases)
        assert verify_job(world.job_id, world, world, loss, None).findings == []
        assert World(on_base, (stated[0], stated[0])).codes(loss) == {"wrong_loss"}
        assert World(on_base, (stated[0], (stated[1][0], "0.000001", stated[1][2]))).codes(loss) == {"wrong_loss"}
    [weights] = ModelManifest.from_bytes(world.files[world.spec.base]).files.values()
    del world.files[weights.cid]
    with BaseFiles(world) as bases:
        assert world.codes(partial(model_loss, bases)) == {"unresolvable"}


@pytest.mark.parametrize(("count", "block", "is_enough"), [(64, 4, True), (63, 4, False), (64, 6, False)])
def test_rate_follows_units_settled_before_window(count: int, block: int, is_enough: bool) -> None:
    world = World()
    world.sampled_at(200)
    world.settle_before(count, block)
    assert (world.codes() == set()) is is_enough
    again = Penalty(HONEST.address, 2, world.record.slashes[0].evidence, block)  # the history starts after it
    world.convictions.append(again)
    assert world.codes() == {"sampled_too_little"}


def test_round_is_joined_without_deleted_outer_state() -> None:
    world: Any = World()
    assert verify_round(world.job_id, 1, world, world).findings == []
    del world.files[world.manifest(1).outer_state]
    assert verify_round(world.job_id, 1, world, world).findings == []
    world.relink(1, model=world.record.checkpoints[0].model_cid)
    assert {finding.where for finding in verify_round(world.job_id, 0, world, world).findings} >= {"rounds[0].model"}
    with pytest.raises(ZooError, match="no checkpoint on record"):
        verify_round(world.job_id, 2, world, world)


def _continuation(world: World) -> TrainingSpec:
    """Store the last checkpoint of another job, and return the specification that continues it."""
    before: Any = World()
    world.files |= before.files
    given = {"start_checkpoint": before.record.checkpoints[2].cid, "start_round": 2}
    return replace(before.spec, **given)


def test_continuation_is_joined_from_start_checkpoint() -> None:
    world: Any = World(_continuation)
    assert verify_job(world.job_id, world, world).findings == []
    del world.files[world.manifest(1).outer_state]  # then round 1 needs the state before round 0
    assert verify_round(world.job_id, 1, world, world).findings == []
    world.relink(0, outer_state=world.put(b"another"))
    found = {finding.where for finding in verify_round(world.job_id, 0, world, world).findings}
    assert "checkpoints[0].outer_state" in found


def test_presented_receipt_is_compared_key_by_key() -> None:
    world: Any = World()
    recomputed = verify_job(world.job_id, world, world).receipt
    claimed = json.loads(json.dumps(recomputed)) | {"ledger_reconciled": True, "treasury_balance_wei": "5"}
    assert differences(claimed, recomputed) == []
    claimed["paid_wei"] = "0"
    assert [finding.where for finding in differences(claimed, recomputed)] == ["paid_wei"]
