"""Late payloads: used at a lower weight or restored, verified and paid either way."""

import json
from datetime import timedelta
from typing import Any

import pytest
from kit.jobs.aggregation_tree_fixtures import leaves_of
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from kit.payments.cancelled_jobs import cancel_now

from market.domain.lifecycle import JobStatus, UnitStatus
from market.jobs.models import Job
from market.payments.payables import service as payables
from market.platform.db.base import utc_now
from market.training.aggregation import service as aggregation
from market.training.aggregation import tree
from market.training.checkpoints.service import PIN_GRACE, load_outer, load_parameters
from market.training.leases import errors as leases_errors
from market.training.leases import expiry
from market.training.leases.errors import ResultRefused
from market.training.units import service as units
from training_gym.aggregate.aggregation import aggregate
from training_gym.compress.payload_format import decode
from training_gym.exchange.deadlines import MAX_STALENESS, staleness_weight
from training_gym.units.checkpoint import CheckpointManifest, save_state
from zoo_protocol.content.unixfs import cid_of_file

WEIGHT_OF_ONE_ROUND = 2896  # 4096 / sqrt(2)


@pytest.fixture
def job_id(world: World, nodes: list[str]) -> str:
    return world.running(nodes, rounds=8)


def _close_round(world: World, job_id: str) -> None:
    world.change(Job, job_id, round_started_at=utc_now() - timedelta(days=1))
    world.end_round(job_id)


def _late(world: World, job_id: str, nodes: list[str], rounds: int = 1) -> Work:
    work = world.work(nodes[3])
    work.commit()
    for _ in range(rounds):
        world.deliver_all(nodes[:3])
        _close_round(world, job_id)
    return work


def _recomputed(world: World, manifest: CheckpointManifest) -> tuple[str, dict[str, Any]]:
    record = json.loads(world.storage.get(manifest.aggregation or "", max_bytes=2**20))
    payloads = {item["place"]: world.storage.get(item["payload"], max_bytes=2**24) for item in record["payloads"]}
    weights = {item["place"]: item["weight"] for item in record["payloads"]}
    parameters = load_parameters(world.storage, world.spec, record["checkpoint"])
    state = load_outer(world.storage, world.spec, record["checkpoint"])
    return str(cid_of_file(save_state(aggregate(world.spec, parameters, payloads, weights, state).parameters))), record


def test_late_payload_has_lower_weight_in_arrival_round(world: World, nodes: list[str], job_id: str) -> None:
    late = _late(world, job_id, nodes)
    [unit] = world.units(job_id, round=0, slot=3)
    assert unit.status == UnitStatus.COMMITTED
    assert world.units(job_id, round=1, slot=3) == []  # its next unit starts from what this one leaves unsent
    late.complete()
    world.dispatch(job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.status, unit.rounds_late, unit.included) == (UnitStatus.UPLOADED, 1, None)
    assert world.units(job_id, round=1, slot=3)[0].start_slot_state_cid == unit.slot_state_cid
    world.deliver_all(nodes)
    _close_round(world, job_id)
    assert world.units(job_id, round=0, slot=3)[0].included is True
    assert [unit.included for unit in world.units(job_id, round=1)] == [True] * 4

    manifest = world.manifest(job_id, 2)
    model, record = _recomputed(world, manifest)
    assert model == manifest.model
    assert [(item["place"], item["round"], item["weight"]) for item in record["payloads"]] == [
        *((slot, 1, 4096) for slot in range(4)),
        (7, 0, WEIGHT_OF_ONE_ROUND),
    ]
    assert manifest.slot_states["3"] == world.units(job_id, round=1, slot=3)[0].slot_state_cid


@pytest.mark.parametrize("rounds", [pytest.param(MAX_STALENESS, marks=pytest.mark.long), MAX_STALENESS + 1])
def test_payload_beyond_max_age_is_restored(world: World, nodes: list[str], job_id: str, rounds: int) -> None:
    late = _late(world, job_id, nodes, rounds)
    late.complete()
    world.dispatch(job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    [following] = world.units(job_id, round=rounds, slot=3)
    assert unit.status == UnitStatus.UPLOADED
    if rounds == MAX_STALENESS:
        assert (unit.included, following.start_slot_state_cid) == (None, unit.slot_state_cid)
        world.deliver_all(nodes[:3])
        _close_round(world, job_id)
        _, record = _recomputed(world, world.manifest(job_id, rounds + 1))
        assert record["payloads"][-1]["weight"] == staleness_weight(rounds) == 1831
        return
    assert (unit.included, unit.exclusion_reason) == (False, "too_late")
    start = (following.start_slot_state_cid, following.start_restored_payload_cid)
    assert start == (unit.slot_state_cid, unit.payload_cid)
    following_work = world.work(nodes[3])
    assert following_work.lease.task["restored_payload_cid"] == unit.payload_cid
    restored = following_work.unit().slot_state
    left, sent = late.slot_state, decode(world.spec, late.payload).dense()
    assert (restored.error_feedback == left.error_feedback + sent).all()
    assert restored.steps == left.steps
    assert "3" not in world.manifest(job_id, rounds).slot_states  # no file is of this start
    following_work.deliver()
    world.deliver_all(nodes[:3])
    _close_round(world, job_id)
    [after] = world.units(job_id, round=rounds + 1, slot=3)
    assert (after.start_slot_state_cid, after.start_restored_payload_cid) == (following_work.slot_state_cid, None)


def test_restored_start_leaf_is_checked_by_replay(world: World, nodes: list[str], job_id: str) -> None:
    late = _late(world, job_id, nodes, MAX_STALENESS + 1)
    late.complete()
    world.dispatch(job_id)
    work = world.work(nodes[3])
    work.leaves[0] = b"\1" * 32
    work.deliver()
    [unit] = world.units(job_id, round=MAX_STALENESS + 1, slot=3)
    assert unit.status == UnitStatus.UPLOADED
    other = world.work(nodes[0])  # any other start the market knows by its digest
    other.leaves[0] = b"\1" * 32
    other.commit()
    with pytest.raises(ResultRefused) as refused:
        other.complete()
    assert refused.value.extra["reason"] == "wrong_start_leaf"


@pytest.mark.parametrize("rounds", [1, pytest.param(MAX_STALENESS + 1, marks=pytest.mark.long)])
def test_late_units_are_checked_and_paid_like_others(world: World, nodes: list[str], job_id: str, rounds: int) -> None:
    _late(world, job_id, nodes, rounds).complete()
    world.verify_uploaded(job_id)
    payable = world.call(payables.payable_units, job_id)
    assert (0, 3) in {(unit.round, unit.slot) for unit in payable}


@pytest.mark.parametrize("rounds", [8, 1])
def test_uncommitted_late_unit_is_lost(world: World, nodes: list[str], rounds: int) -> None:
    job_id = world.running(nodes, rounds=rounds)
    slow = world.work(nodes[3])
    world.deliver_all(nodes[:3])
    _close_round(world, job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.status, unit.reason) == (UnitStatus.LOST, "round_closed")
    if rounds == 1:
        assert world.holders(job_id) == [None] * 4
    with pytest.raises(leases_errors.LeaseLost):
        slow.commit()


def test_silent_node_with_late_upload_frees_replica(world: World, nodes: list[str], job_id: str) -> None:
    late = _late(world, job_id, nodes)
    spare = world.node()
    world.age(late.lease.id)
    assert expiry.expire_due(world.database, utc_now()) == 1
    world.dispatch(job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.status, unit.reason) == (UnitStatus.LOST, "node_silent")
    [following] = world.units(job_id, round=1, slot=3)
    assert following.provider in (spare, nodes[3])  # the returning node may continue
    assert following.start_slot_state_cid is None


def test_payload_during_aggregation_joins_next_round(
    world: World, nodes: list[str], job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = world.work(nodes[3])
    work.commit()
    world.deliver_all(nodes[:3])
    original = aggregation._build_checkpoint

    def deliver_meanwhile(*arguments: Any) -> Any:
        result = original(*arguments)
        work.complete()
        return result

    monkeypatch.setattr(aggregation, "_build_checkpoint", deliver_meanwhile)
    _close_round(world, job_id)
    monkeypatch.setattr(aggregation, "_build_checkpoint", original)
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.included, unit.rounds_late) == (None, 1)
    assert world.units(job_id, round=1, slot=3)[0].start_slot_state_cid == unit.slot_state_cid
    world.deliver_all(nodes[:3])
    _close_round(world, job_id)
    assert world.units(job_id, round=0, slot=3)[0].included is True


def test_false_late_payload_is_excluded(world: World, nodes: list[str], job_id: str) -> None:
    _late(world, job_id, nodes).complete()
    [unit] = world.units(job_id, round=0, slot=3)
    world.call(units.reject_unit, unit.id, "incorrect_computation")
    world.deliver_all(nodes[:3])
    _close_round(world, job_id)
    assert world.units(job_id, round=0, slot=3)[0].included is None
    assert len(_recomputed(world, world.manifest(job_id, 2))[1]["payloads"]) == 3


def test_late_payload_after_last_round_is_unused(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=2)
    late = _late(world, job_id, nodes)
    world.deliver_all(nodes[:3])
    original, done = aggregation._build_checkpoint, []

    def deliver_meanwhile(*arguments: Any) -> Any:
        done.append(late.complete())
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregation, "_build_checkpoint", deliver_meanwhile)
        _close_round(world, job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    assert (unit.status, unit.included, unit.exclusion_reason) == (UnitStatus.UPLOADED, False, "late")


def test_tree_aggregates_late_payloads_bit_exactly(world: World, nodes: list[str], job_id: str) -> None:
    _late(world, job_id, nodes).complete()
    world.dispatch(job_id)
    world.deliver_all(nodes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("market.training.aggregation.tree.leaves", lambda groups: [[4, 0], [2], [1, 3]])
        world.settings = world.settings.model_copy(update={"tree_aggregation_min_values": 0})
        world.aggregate(job_id)
    numbers = [row.leaf for row in leaves_of(world, job_id)]
    assert numbers == [0, 1, 2]
    for leaf in [*numbers, *numbers]:
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 1, leaf)
    world.aggregate(job_id)
    manifest = world.manifest(job_id, 2)
    model, record = _recomputed(world, manifest)
    assert (model, len(record["payloads"])) == (manifest.model, 5)


def _uploading_at_the_end(world: World, nodes: list[str]) -> tuple[str, Work]:
    job_id = world.running(nodes, rounds=1)
    return job_id, _late(world, job_id, nodes)


def _status_without_pins(world: World, job_id: str) -> str:
    world.change(Job, job_id, trained_at=utc_now() - PIN_GRACE)
    world.dispatch(job_id)
    return world.read(job_id).status


def test_last_round_unit_is_uploaded_verified_and_paid(world: World, nodes: list[str]) -> None:
    job_id, late = _uploading_at_the_end(world, nodes)
    [unit] = world.units(job_id, slot=3)
    assert (world.read(job_id).status, unit.status) == (JobStatus.VERIFYING, UnitStatus.COMMITTED)
    assert world.holders(job_id) == [None, None, None, nodes[3]]  # it gets no other work until then
    world.verify_uploaded(job_id)
    assert _status_without_pins(world, job_id) == JobStatus.VERIFYING  # its escrow is not closed while it may be owed
    late.complete()
    late.complete()  # a repetition changes nothing
    [unit] = world.units(job_id, slot=3)
    assert (unit.status, unit.included, unit.exclusion_reason) == (UnitStatus.UPLOADED, False, "late")
    assert world.holders(job_id) == [None] * 4
    assert _status_without_pins(world, job_id) == JobStatus.VERIFYING  # nothing is paid unverified
    world.verify_uploaded(job_id)
    assert _status_without_pins(world, job_id) == JobStatus.SETTLING
    payable = world.call(payables.payable_units, job_id)
    assert [(unit.round, unit.slot) for unit in payable] == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_job_end_waits_for_bounded_upload_time(world: World, nodes: list[str]) -> None:
    job_id, late = _uploading_at_the_end(world, nodes)
    world.verify_uploaded(job_id)
    before = utc_now() - timedelta(seconds=world.settings.upload_seconds)
    assert expiry.expire_uploads(world.database, before) == 0
    assert expiry.expire_uploads(world.database, utc_now()) == 1  # as if they had passed
    [unit] = world.units(job_id, slot=3)
    assert (unit.status, unit.reason) == (UnitStatus.LOST, "upload_overdue")
    assert world.holders(job_id) == [None] * 4
    assert _status_without_pins(world, job_id) == JobStatus.SETTLING
    payable = world.call(payables.payable_units, job_id)
    assert [unit.slot for unit in payable] == [0, 1, 2]
    with pytest.raises(leases_errors.LeaseLost):
        late.complete()


def test_cancelled_job_waits_for_no_upload(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=2)
    late = _late(world, job_id, nodes)
    cancel_now(world, job_id)
    [unit] = world.units(job_id, round=0, slot=3)
    assert unit.status == UnitStatus.LOST
    assert world.holders(job_id) == [None] * 4
    with pytest.raises(leases_errors.LeaseLost):
        late.complete()
