"""Jobs with ``round_delay``: the next round starts during the last aggregation."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from kit.jobs.jobs_fixtures import World
from sqlalchemy import select, text, update

from market.accounts.service import Principal
from market.domain.lifecycle import UnitStatus
from market.domain.network import DEVNET
from market.jobs.models import Job, Slot
from market.orders import amendments
from market.payments.payables import service as payables
from market.platform.db.base import utc_now
from market.training.checkpoints.service import load_outer, load_parameters
from market.training.leases import expiry
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost, ResultRefused, WrongStep
from market.training.units import service as units
from market.training.units.models import Unit
from training_gym.aggregate.aggregation import aggregate
from training_gym.exchange.early_start import start_parameters
from training_gym.model.tensors import flatten
from training_gym.units.checkpoint import save_state
from zoo_protocol.content.unixfs import cid_of_file


@pytest.fixture
def job_id(world: World, nodes: list[str]) -> str:
    world.spec = replace(world.spec, training=replace(world.spec.training, round_delay=1, rounds=4))
    return world.running(nodes, document=world.spec.to_dict())


def _age(world: World, job_id: str, age: timedelta) -> None:
    world.execute(update(Unit).where(Unit.job_id == job_id, Unit.round == 0).values(created_at=utc_now() - age))


def _late_in_the_round(world: World, job_id: str) -> None:
    world.settings = world.settings.model_copy(update={"round_grace_seconds": 1.0})
    took = text(
        "UPDATE units SET created_at = uploaded_at - interval '100 seconds' WHERE job_id = :job_id "
        "AND uploaded_at IS NOT NULL"
    )
    world.call(lambda session: session.execute(took, {"job_id": job_id}))


def test_delivered_node_continues_from_checkpoint_and_own_payload(world: World, nodes: list[str], job_id: str) -> None:
    world.deliver_and_go_on(job_id, nodes[0])
    assert len(world.units(job_id, round=1)) == 1
    first, ahead = world.attempt(job_id, 0, 0), world.attempt(job_id, 1, 0)
    assert (ahead.provider, ahead.start_checkpoint_cid) == (nodes[0], world.checkpoint(job_id, 0))
    assert ahead.start_eager_payload_cid == first.payload_cid
    assert ahead.start_slot_state_cid == first.slot_state_cid
    work = world.work(nodes[0])
    task, checkpoint = work.lease.task, load_parameters(world.storage, world.spec, world.checkpoint(job_id, 0))
    assert task["eager_payload_cid"] == first.payload_cid
    start = start_parameters(world.spec, checkpoint, world.storage.get(first.payload_cid or "", max_bytes=2**24))
    assert (flatten(work.unit().checkpoint) == flatten(start)).all()
    assert (flatten(start) != flatten(checkpoint)).any()
    work.deliver()
    world.dispatch(job_id)
    assert world.attempt(job_id, 1, 0).status == UnitStatus.UPLOADED
    ahead = world.attempt(job_id, 1, 0)
    assert (ahead.rounds_late, world.units(job_id, round=2)) == (0, [])  # one round ahead, no more

    world.deliver_and_go_on(job_id, *nodes[1:])
    assert [unit.slot for unit in world.units(job_id, round=1)] == [0, 1, 2, 3]
    world.end_round(job_id)
    assert [unit.included for unit in world.units(job_id, round=0)] == [True] * 4
    assert {unit.included for unit in world.units(job_id, round=1)} == {None}
    third = world.attempt(job_id, 2, 0)  # it had been waiting for nothing but this checkpoint
    assert third.start_checkpoint_cid == world.checkpoint(job_id, 1)
    assert third.start_eager_payload_cid == world.attempt(job_id, 1, 0).payload_cid
    assert third.start_slot_state_cid == world.attempt(job_id, 1, 0).slot_state_cid
    manifest = world.manifest(job_id, 1)
    states = {str(slot): world.attempt(job_id, 0, slot).slot_state_cid for slot in range(4)}
    assert manifest.slot_states == states  # the start states of round 1


def test_nearly_dense_payload_is_continued(world: World, nodes: list[str]) -> None:
    """It is longer than a dense payload, which needs no indices."""
    training = replace(world.spec.training, round_delay=1, rounds=4, top_k=3000, value_bits=2)
    world.spec = replace(world.spec, training=training)
    job_id = world.running(nodes, document=world.spec.to_dict())
    world.deliver_and_go_on(job_id, nodes[0])
    world.deliver_and_go_on(job_id, nodes[0])
    assert world.attempt(job_id, 1, 0).start_eager_payload_cid == world.attempt(job_id, 0, 0).payload_cid
    assert world.attempt(job_id, 1, 0).status == UnitStatus.UPLOADED


def test_first_leaf_of_bare_checkpoint_is_refused(world: World, nodes: list[str], job_id: str) -> None:
    world.deliver_and_go_on(job_id, nodes[0])
    work = world.work(nodes[0])
    task = work.lease.task
    task["eager_payload_cid"] = None  # as if the node had not moved by it
    wrong = type(work)(world, work.lease, nodes[0])
    wrong.commit()
    with pytest.raises(ResultRefused) as refused:
        wrong.complete()
    assert refused.value.extra == {"reason": "wrong_start_leaf"}
    assert [unit.status for unit in world.units(job_id, round=1, slot=0)] == ["lost"]
    world.dispatch(job_id)
    assert world.attempt(job_id, 1, 0).provider == nodes[0]  # offered again, from the same start
    world.deliver_and_go_on(job_id, nodes[0])


def test_rounds_aggregate_in_order_and_units_pay_once(world: World, nodes: list[str], job_id: str) -> None:
    for round_ in range(4):
        world.deliver_and_go_on(job_id, *nodes)
        assert len(world.units(job_id, round=round_ + 1)) == (4 if round_ < 3 else 0)
        world.end_round(job_id)
    assert world.read(job_id).status == "verifying"
    done = world.units(job_id)
    assert [(unit.round, unit.slot) for unit in done] == [(round_, slot) for round_ in range(4) for slot in range(4)]
    assert {unit.included for unit in done} == {True}
    assert [unit.start_checkpoint_cid for unit in done] == [
        world.checkpoint(job_id, max(0, unit.round - 1)) for unit in done
    ]
    for round_ in range(1, 5):  # any client can aggregate them again
        manifest = world.manifest(job_id, round_)
        record = json.loads(world.storage.get(manifest.aggregation or "", max_bytes=2**20))
        payloads = {item["place"]: world.storage.get(item["payload"], max_bytes=2**24) for item in record["payloads"]}
        before = load_parameters(world.storage, world.spec, record["checkpoint"])
        state = load_outer(world.storage, world.spec, record["checkpoint"])
        joined = aggregate(world.spec, before, payloads, outer_state=state)
        assert cid_of_file(save_state(joined.parameters)) == manifest.model
    world.execute(update(Unit).where(Unit.job_id == job_id).values(status="verified"))
    paid = world.call(payables.payable_units, job_id)
    assert [(unit.round, unit.slot) for unit in paid] == [(unit.round, unit.slot) for unit in done]


def test_next_round_unit_is_paid_after_round_closes(world: World, nodes: list[str], job_id: str) -> None:
    world.deliver_and_go_on(job_id, *nodes)
    world.deliver_and_go_on(job_id, nodes[0])
    world.verify_uploaded(job_id)
    assert world.call(payables.payable_units, job_id) == []
    world.end_round(job_id)
    paid = world.call(payables.payable_units, job_id)
    assert [(unit.round, unit.slot) for unit in paid] == [(0, slot) for slot in range(4)]


def test_late_hot_spare_starts_next_round_at_once(world: World, nodes: list[str], job_id: str) -> None:
    world.deliver_and_go_on(job_id, *nodes)
    world.end_round(job_id)
    spare = world.node()
    world.deliver_and_go_on(job_id, *nodes[:3])
    _late_in_the_round(world, job_id)
    world.call(leases.remove_node_from_jobs, nodes[3], "a test")
    world.dispatch(job_id)
    unit = world.attempt(job_id, 2, 3)
    assert (unit.provider, unit.start_checkpoint_cid) == (spare, world.checkpoint(job_id, 1))
    assert (unit.start_eager_payload_cid, unit.start_slot_state_cid) == (None, None)
    world.end_round(job_id)  # round 1 does not wait for the spare
    world.deliver_and_go_on(job_id, spare, *nodes[:3])
    assert world.attempt(job_id, 3, 3).start_eager_payload_cid == world.attempt(job_id, 2, 3).payload_cid
    world.end_round(job_id)
    world.deliver_and_go_on(job_id, spare, *nodes[:3])
    world.end_round(job_id)
    assert world.read(job_id).status == "verifying"
    assert [len([u for u in world.units(job_id, round=r) if u.included]) for r in range(4)] == [4, 3, 4, 4]


@pytest.mark.parametrize(("ago", "goes_ahead"), [(40, True), (60, False)])
def test_late_replica_skips_round_to_get_ahead(
    world: World, nodes: list[str], job_id: str, ago: int, goes_ahead: bool
) -> None:
    world.settings = world.settings.model_copy(update={"round_grace_seconds": 1.0})
    behind = world.work(nodes[3])
    world.deliver_and_go_on(job_id, *nodes[:3])
    _age(world, job_id, timedelta(seconds=100))  # a unit takes so long, and a round waits half of it for stragglers
    began = utc_now() - timedelta(seconds=ago)
    world.execute(update(Unit).where(Unit.job_id == job_id, Unit.round == 1).values(created_at=began))
    behind.deliver()
    world.dispatch(job_id)
    assert bool(world.units(job_id, round=1, slot=3)) is goes_ahead
    if goes_ahead:
        return
    assert world.all(select(Slot.provider).where(Slot.job_id == job_id).order_by(Slot.slot)) == nodes
    world.end_round(job_id)
    assert world.units(job_id, round=1, slot=3) == []
    unit = world.attempt(job_id, 2, 3)
    assert (unit.provider, unit.start_checkpoint_cid) == (nodes[3], world.checkpoint(job_id, 1))
    assert unit.start_slot_state_cid == behind.slot_state_cid
    assert unit.start_eager_payload_cid is None  # its last update is aggregated already


def test_takeover_starts_from_replica_payload_without_state(world: World, nodes: list[str], job_id: str) -> None:
    spare = world.node()
    world.deliver_and_go_on(job_id, nodes[0])
    world.call(leases.remove_node_from_jobs, nodes[0], "a test")
    world.dispatch(job_id)
    unit = world.attempt(job_id, 1, 0)
    assert (unit.provider, unit.start_slot_state_cid) == (spare, None)
    assert unit.start_eager_payload_cid == world.attempt(job_id, 0, 0).payload_cid
    world.deliver_and_go_on(job_id, spare)
    assert world.attempt(job_id, 1, 0).status == UnitStatus.UPLOADED


def test_round_without_quorum_gets_units_from_leading_replicas(world: World, nodes: list[str], job_id: str) -> None:
    world.deliver_and_go_on(job_id, *nodes)
    world.end_round(job_id)
    world.deliver_and_go_on(job_id, *nodes[:3])  # of round 1; of round 2 they have units too
    _late_in_the_round(world, job_id)
    world.call(leases.remove_node_from_jobs, nodes[3], "a test")
    spare = world.node()
    world.dispatch(job_id)
    world.deliver_and_go_on(job_id, spare)  # of round 2
    world.call(units.reject_unit, world.attempt(job_id, 1, 0).id, "incorrect_computation")
    _late_in_the_round(world, job_id)
    world.dispatch(job_id)
    assert world.attempt(job_id, 1, 3).provider == spare
    world.deliver_and_go_on(job_id, spare)
    world.end_round(job_id)


def test_late_unit_keeps_replica_waiting_and_aggregates_later(world: World, nodes: list[str], job_id: str) -> None:
    late = world.work(nodes[3])
    late.declares = False
    late.commit()
    world.deliver_and_go_on(job_id, *nodes[:3])
    _age(world, job_id, timedelta(days=1))
    world.end_round(job_id)
    _age(world, job_id, timedelta(0))  # otherwise later offers would seem too late
    assert world.units(job_id, round=1, slot=3) == []
    late.complete()
    world.dispatch(job_id)
    assert world.attempt(job_id, 0, 3).rounds_late == 1
    after = world.attempt(job_id, 1, 3)
    assert (after.start_slot_state_cid, after.start_eager_payload_cid) == (late.slot_state_cid, None)
    world.deliver_and_go_on(job_id, *nodes)
    world.end_round(job_id)
    assert world.attempt(job_id, 0, 3).included is True


def test_paused_job_gets_no_units_and_finishes_pending(world: World, nodes: list[str], job_id: str) -> None:
    world.deliver_and_go_on(job_id, nodes[0], nodes[1])
    world.execute(update(Job).where(Job.id == job_id).values(paused_at=utc_now()))
    world.deliver_and_go_on(job_id, nodes[2], nodes[3])
    assert [unit.slot for unit in world.units(job_id, round=1)] == [0, 1]
    world.end_round(job_id)
    world.deliver_and_go_on(job_id, nodes[0])
    holders = select(Slot.provider).where(Slot.job_id == job_id).order_by(Slot.slot)
    assert None not in world.all(holders)  # one is still at work
    world.deliver_and_go_on(job_id, nodes[1])
    assert world.all(holders) == [None] * 4
    world.execute(update(Job).where(Job.id == job_id).values(paused_at=None))
    world.dispatch(job_id)
    assert [unit.slot for unit in world.units(job_id, round=1)] == [0, 1, 2, 3]


def test_long_paused_job_is_not_abandoned_on_resume(world: World, nodes: list[str], job_id: str) -> None:
    """Offers before the pause do not count towards the loss of the quorum."""
    world.deliver(nodes[0])
    payer = Principal(world.read(job_id).payer, frozenset(), 1, "session")
    world.call(amendments.pause, payer, job_id, DEVNET)
    for node in nodes[1:]:
        world.call(leases.remove_node_from_jobs, node, "jailed")
    world.dispatch(job_id)
    _age(world, job_id, timedelta(seconds=world.settings.round_deadline_seconds * 4))
    world.call(amendments.resume, payer, job_id)
    world.dispatch(job_id)
    assert world.read(job_id).status == "running"
    world.deliver_and_go_on(job_id, *nodes[1:])
    world.end_round(job_id)


def test_unit_is_uploaded_during_next_one(world: World, nodes: list[str], job_id: str) -> None:
    first = world.commit_and_go_on(job_id, nodes[0])
    before, ahead = world.attempt(job_id, 0, 0), world.attempt(job_id, 1, 0)
    assert before.status == UnitStatus.COMMITTED
    assert (ahead.start_eager_payload_cid, ahead.start_slot_state_cid) == (before.payload_cid, first.slot_state_cid)
    second = world.commit_and_go_on(job_id, nodes[0])
    with pytest.raises(WrongStep):
        second.complete()  # its start could not be read
    world.deliver_all(nodes[1:])
    first.complete()
    second.complete()
    world.dispatch(job_id)
    world.end_round(job_id)
    assert {unit.included for unit in world.units(job_id, round=0)} == {True}
    assert world.attempt(job_id, 2, 0).start_slot_state_cid == second.slot_state_cid


def test_undeclared_or_departed_unit_is_awaited(world: World, nodes: list[str], job_id: str) -> None:
    silent = world.work(nodes[0])
    silent.declares = False
    silent.commit()
    world.dispatch(job_id)
    assert world.units(job_id, round=1) == []
    declared = world.work(nodes[1])
    declared.commit()
    with world.database.transaction() as session:  # it leaves its slot, and still uploads
        [slot] = session.query(Slot).filter(Slot.provider == nodes[1])
        slot.provider = None
    spare = world.node()
    world.dispatch(job_id)
    assert world.units(job_id, round=1) == []
    declared.complete()
    world.dispatch(job_id)
    unit = world.attempt(job_id, 1, 1)
    assert (unit.start_eager_payload_cid, unit.start_slot_state_cid) == (
        world.attempt(job_id, 0, 1).payload_cid,
        declared.slot_state_cid if unit.provider == nodes[1] else None,
    )
    assert unit.provider in (spare, nodes[1])


def test_declared_unit_without_upload_invalidates_dependents(world: World, nodes: list[str], job_id: str) -> None:
    first = world.commit_and_go_on(job_id, nodes[0])
    second = world.commit_and_go_on(job_id, nodes[0])
    world.age(first.lease.id)
    assert expiry.expire_due(world.database, utc_now()) == 1
    lost = {unit.round: unit for unit in world.units(job_id, slot=0)}
    assert [(lost[r].status, lost[r].reason) for r in (0, 1)] == [("lost", "node_silent"), ("lost", "start_lost")]
    assert (lost[0].payload_cid, lost[0].trace_root is None) == (None, False)
    with pytest.raises(LeaseLost):
        second.complete()
    world.dispatch(job_id)
    again = world.attempt(job_id, 0, 0)
    assert (again.start_slot_state_cid, again.start_eager_payload_cid) == (None, None)
    world.deliver_and_go_on(job_id, again.provider, *nodes[1:])
    world.end_round(job_id)


def test_another_payload_than_was_declared_is_refused(world: World, nodes: list[str], job_id: str) -> None:
    work = world.work(nodes[0])
    commitment = work.commitment()
    work.commit(commitment.model_copy(update={"payload_cid": world.storage.put(b"other", max_bytes=9).cid}))
    with pytest.raises(ResultRefused) as refused:
        work.complete()
    assert refused.value.extra == {"reason": "payload_mismatch"}
