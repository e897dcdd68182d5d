"""Replica states: start states of units, and when states reach storage."""

from typing import Any

import pytest
from kit.api.upload_fixtures import stored
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from sqlalchemy import select, update

from market.domain.lifecycle import NODE_STOPPING, UnitStatus
from market.jobs.models import Job, Slot
from market.platform.events.models import JobEventRow
from market.platform.storage.errors import BlobNotFound
from market.training.checkpoints.models import Checkpoint
from market.training.leases import service as leases
from market.training.leases.errors import ResultRefused
from market.training.leases.schemas import CompletePublish, LeaseKind
from market.training.replication.slot_state_uploads import MAX_ATTEMPTS
from market.training.units import service as units
from market.training.units.models import Unit
from market.training.units.slot_states import MISSING
from training_gym.units.checkpoint import CheckpointManifest
from zoo_protocol.hashing import to_hex


@pytest.fixture
def job_id(world: World, nodes: list[str]) -> str:
    return world.running(nodes, rounds=6)


def _replace_holder(world: World, job_id: str, slot: int, unit: Unit) -> str:
    spare = world.node()
    for _ in range(3):  # after so many failures in a round it gets no more of that round
        [holder] = world.all(select(Slot.provider).filter_by(job_id=job_id, slot=slot))
        if holder == spare:
            break
        lease = world.pulled(unit.provider)
        world.call(leases.fail, lease.id, unit.provider, lease.token, "out_of_memory", "a test")
        world.dispatch(job_id)
    return spare


def _events(world: World, kind: str) -> list[dict[str, Any]]:
    return world.all(select(JobEventRow.data).filter_by(kind=kind).order_by(JobEventRow.id))


def test_unit_continues_from_local_state_without_upload(world: World, nodes: list[str], job_id: str) -> None:
    first = world.train_round(job_id, nodes)
    for slot, done in enumerate(first):
        [unit], [following] = world.units(job_id, round=0, slot=slot), world.units(job_id, round=1, slot=slot)
        assert (unit.slot_state_cid, unit.slot_state_public) == (done.slot_state_cid, False)
        assert unit.uploaded_bytes == len(done.payload)
        assert following.start_slot_state_cid == done.slot_state_cid
        assert following.start_slot_state_digest == to_hex(done.slot_state.digest())
        assert not stored(world, done.slot_state_cid)
    [second, *_] = world.train_round(job_id, nodes)  # and the first leaf is checked by the digest alone
    assert second.lease.task["slot_state_cid"] == first[0].slot_state_cid
    assert _events(world, "slot_fresh") == []


def test_first_leaf_differing_from_replica_state_is_refused(world: World, nodes: list[str], job_id: str) -> None:
    world.train_round(job_id, nodes)
    work = world.work(nodes[0])
    world.kept[nodes[0]] = {}
    with pytest.raises(BlobNotFound):
        work.unit()
    task = work.lease.task | {"slot_state_cid": None}  # as if the replica began again
    fresh = Work(world, work.lease.model_copy(update={"task": task}), nodes[0])
    fresh.commit()
    with pytest.raises(ResultRefused) as refused:
        fresh.complete()
    assert refused.value.extra["reason"] == "wrong_start_leaf"


def test_successor_is_instructed_to_start_fresh(world: World, nodes: list[str], job_id: str) -> None:
    [*_, last] = world.train_round(job_id, nodes)
    [unit] = world.units(job_id, round=1, slot=3)
    spare = _replace_holder(world, job_id, 3, unit)
    [taken] = world.units(job_id, round=1, slot=3, provider=spare)
    assert (taken.start_slot_state_cid, taken.start_slot_state_digest) == (None, None)
    event = {"round": 1, "slot": 3, "reason": "held_by_another_node", "slot_state_cid": last.slot_state_cid}
    assert _events(world, "slot_fresh") == [event]
    world.deliver(spare)
    assert world.units(job_id, round=1, slot=3, provider=spare)[0].status == UnitStatus.UPLOADED


def test_replica_starts_fresh_when_node_lost_state(world: World, nodes: list[str], job_id: str) -> None:
    world.train_round(job_id, nodes)
    lease = world.pulled(nodes[0])
    world.call(leases.fail, lease.id, nodes[0], lease.token, MISSING, "its disk was replaced")
    world.dispatch(job_id)
    [lost, again] = world.units(job_id, round=1, slot=0)
    assert (lost.status, lost.reason) == (UnitStatus.LOST, MISSING)
    assert (again.start_slot_state_cid, again.status) == (None, UnitStatus.LEASED)
    assert [event["reason"] for event in _events(world, "slot_fresh")] == ["lost_by_its_node"]


def test_refuted_unit_state_is_not_continued(world: World, nodes: list[str], job_id: str) -> None:
    world.train_round(job_id, nodes)
    [unit] = world.units(job_id, round=0, slot=1)
    world.call(units.reject_unit, unit.id, "incorrect_computation")
    lease = world.pulled(nodes[1])
    world.call(leases.fail, lease.id, nodes[1], lease.token, "out_of_memory", "a test")
    world.dispatch(job_id)
    assert world.units(job_id, round=1, slot=1)[-1].start_slot_state_cid is None
    assert [event["reason"] for event in _events(world, "slot_fresh")] == ["unit_rejected"]


def test_states_of_kept_checkpoints_are_named_and_uploaded(world: World, nodes: list[str], job_id: str) -> None:
    world.execute(update(Job).values(checkpoint_interval=2))
    world.train_round(job_id, nodes)
    assert not any(world.pull(node, LeaseKind.PUBLISH) for node in nodes)  # this round's checkpoint is not kept
    done = world.train_round(job_id, nodes)
    kept = world.one(select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.round == 2))
    manifest = CheckpointManifest.from_bytes(world.storage.get(kept.cid, max_bytes=2**20))
    assert manifest.slot_states == {str(slot): work.slot_state_cid for slot, work in enumerate(done)}
    assert not set(kept.file_cids) & set(manifest.slot_states.values())
    assert world.pin(nodes[0])  # the model's pin does not wait for them
    assert [world.publish(node) for node in nodes] == [True] * 4
    assert all(stored(world, work.slot_state_cid) for work in done)
    assert [unit.slot_state_public for unit in world.units(job_id, round=1)] == [True] * 4
    assert sorted(event["slot"] for event in _events(world, "slot_state")) == [0, 1, 2, 3]
    world.dispatch(job_id)
    assert not any(world.pull(node, LeaseKind.PUBLISH) for node in nodes)  # none is asked for twice

    [unit] = world.units(job_id, round=2, slot=3)
    spare = _replace_holder(world, job_id, 3, unit)
    [taken] = world.units(job_id, round=2, slot=3, provider=spare)
    assert taken.start_slot_state_cid == done[3].slot_state_cid
    assert world.deliver(spare).unit().slot_state.steps == 4
    assert _events(world, "slot_fresh") == []


def test_file_differing_from_declaration_is_not_published(world: World, nodes: list[str], job_id: str) -> None:
    work = world.work(nodes[0])
    other = world.work(nodes[1])
    work.changes["slot_state_cid"] = other.slot_state_cid  # a state, but not that of the digest
    world.kept[nodes[0]] |= world.kept[nodes[1]]
    for done in (work, other):
        done.deliver()
    world.deliver_all(nodes[2:])
    world.close_round(job_id)
    with pytest.raises(ResultRefused) as refused:
        world.publish(nodes[0])
    assert refused.value.extra["reason"] == "wrong_slot_state"
    assert not world.units(job_id, round=0, slot=0)[0].slot_state_public
    for _ in range(MAX_ATTEMPTS - 1):
        world.dispatch(job_id)
        with pytest.raises(ResultRefused):
            world.publish(nodes[0])
    world.dispatch(job_id)
    assert world.pull(nodes[0], LeaseKind.PUBLISH) is None


def test_restarted_node_is_asked_for_newest_state_only(world: World, nodes: list[str], job_id: str) -> None:
    world.train_round(job_id, nodes)
    for _ in range(MAX_ATTEMPTS + 1):
        lease = world.pulled(nodes[0], LeaseKind.PUBLISH)
        world.call(leases.fail, lease.id, nodes[0], lease.token, NODE_STOPPING, "restarted")
        world.dispatch(job_id)
    slow = world.pulled(nodes[0], LeaseKind.PUBLISH)
    [second, *_] = world.train_round(job_id, nodes)
    assert world.pull(nodes[0], LeaseKind.PUBLISH) is None  # while one is under way
    cid = slow.task["slot_state_cid"]
    assert world.storage.put(world.kept[nodes[0]][cid], max_bytes=2**24).cid == cid
    world.complete(slow, nodes[0], CompletePublish(token=slow.token, published_cid=cid))
    world.dispatch(job_id)
    newest = world.pulled(nodes[0], LeaseKind.PUBLISH)
    assert newest.task["slot_state_cid"] == second.slot_state_cid


def test_upload_of_other_state_is_refused(world: World, nodes: list[str], job_id: str) -> None:
    [first, second, *_] = world.train_round(job_id, nodes)
    lease = world.pulled(nodes[0], LeaseKind.PUBLISH)
    answer = CompletePublish(token=lease.token, published_cid=second.slot_state_cid)
    with pytest.raises(ResultRefused) as refused:
        world.complete(lease, nodes[0], answer)
    assert (refused.value.field, refused.value.extra["reason"]) == ("published_cid", "wrong_slot_state")
    assert first.slot_state_cid in refused.value.detail
