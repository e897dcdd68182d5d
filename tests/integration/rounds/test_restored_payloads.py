"""Excluded payloads of replicas that went on: a later unit's start restores them."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from kit.jobs.jobs_fixtures import Work, World
from sqlalchemy import text, update

from market.platform.db.base import utc_now
from market.training.leases import service as leases
from market.training.units import service as units
from market.training.units.models import Unit
from training_gym.compress.payload_format import decode, encode
from training_gym.exchange.deadlines import MAX_STALENESS


def _sent(world: World, node: str, sign: float = 1.0) -> Work:
    work = world.work(node)
    noise = np.random.default_rng().normal(size=len(work.vector)).astype(np.float32)
    common = np.random.default_rng(7).normal(size=len(work.vector)).astype(np.float32)
    work.hand_in(encode(work.spec, (sign * common + noise).astype(np.float32) * np.float32(1e-3)))
    work.deliver()
    return work


def _round_with_an_outlier(world: World, job_id: str, nodes: list[str]) -> Work:
    for node in nodes[:-1]:
        _sent(world, node)
    found = _sent(world, nodes[-1], -1.0)
    world.dispatch(job_id)
    return found


@pytest.fixture
def five(world: World) -> list[str]:
    """Among four payloads none can be an outlier."""
    world.be_patient()
    return [world.node() for _ in range(5)]


def _running(world: World, nodes: list[str], rounds: int = 6, round_delay: int = 1) -> str:
    world.spec = replace(world.spec, training=replace(world.spec.training, round_delay=round_delay, rounds=rounds))
    return world.running(nodes, document=world.spec.to_dict())


def test_excluded_payload_is_restored_to_replica(world: World, five: list[str]) -> None:
    job_id = _running(world, five)
    left_out = _round_with_an_outlier(world, job_id, five)
    ahead = _sent(world, five[4])  # started before the exclusion, from the first unit's state
    world.end_round(job_id)
    unit, second = world.attempt(job_id, 0, 4), world.attempt(job_id, 1, 4)
    assert (unit.included, unit.exclusion_reason) == (False, "opposed")
    assert (second.start_eager_payload_cid, second.start_restored_payload_cid) == (unit.payload_cid, None)

    third = world.attempt(job_id, 2, 4)
    assert third.start_slot_state_cid == second.slot_state_cid
    assert third.start_eager_payload_cid == second.payload_cid
    assert third.start_restored_payload_cid == unit.payload_cid
    assert "4" not in world.manifest(job_id, 1).slot_states  # no file is of what it goes on from
    work = world.work(five[4])
    feedback = work.unit().slot_state.error_feedback
    assert (feedback == ahead.slot_state.error_feedback + decode(world.spec, left_out.payload).dense()).all()
    work.deliver()
    for node in five[:4]:
        _sent(world, node)
    world.dispatch(job_id)
    world.end_round(job_id)
    after = world.attempt(job_id, 3, 4)
    assert (after.start_slot_state_cid, after.start_restored_payload_cid) == (work.slot_state_cid, None)  # once


def test_excluded_payload_is_restored_without_round_delay(world: World, five: list[str]) -> None:
    job_id = _running(world, five, round_delay=0)
    left_out = _round_with_an_outlier(world, job_id, five)
    world.end_round(job_id)
    unit, second = world.attempt(job_id, 0, 4), world.attempt(job_id, 1, 4)
    assert (unit.included, unit.exclusion_reason) == (False, "opposed")
    assert (second.start_slot_state_cid, second.start_restored_payload_cid) == (unit.slot_state_cid, unit.payload_cid)
    assert set(world.manifest(job_id, 1).slot_states) == {"0", "1", "2", "3"}  # no file is of what it goes on from
    start = world.work(five[4]).unit().slot_state
    left = left_out.slot_state
    assert (start.error_feedback == left.error_feedback + decode(world.spec, left_out.payload).dense()).all()
    assert start.steps == left.steps > 0
    assert all((start.moments[name] == left.moments[name]).all() for name in left.moments)


def test_rollback_restores_no_earlier_payload(world: World, five: list[str]) -> None:
    job_id = _running(world, five)
    _round_with_an_outlier(world, job_id, five)
    _sent(world, five[4])
    world.end_round(job_id)
    assert world.attempt(job_id, 0, 4).to_restore
    for node in five[:4]:
        given_up = world.work(node)
        world.call(leases.fail, given_up.lease.id, node, given_up.lease.token, "diverged", "loss is not finite")
    world.end_round(job_id)
    assert world.attempt(job_id, 1, 4).exclusion_reason == "rolled_back"
    assert world.attempt(job_id, 2, 4).start_restored_payload_cid  # begun before the rollback
    _sent(world, five[4])
    world.dispatch(job_id)
    after = world.attempt(job_id, 3, 4)
    assert (after.start_slot_state_cid, after.start_restored_payload_cid, after.start_eager_payload_cid) == (None,) * 3


def test_lost_start_with_restored_payload_is_reissued(world: World, five: list[str]) -> None:
    job_id = _running(world, five)
    _round_with_an_outlier(world, job_id, five)
    _sent(world, five[4])
    world.end_round(job_id)
    given_up = world.work(five[4])
    world.call(leases.fail, given_up.lease.id, five[4], given_up.lease.token, "input_missing", "a test")
    world.dispatch(job_id)
    again = world.attempt(job_id, 2, 4)
    assert (again.provider, again.start_restored_payload_cid) == (five[4], world.attempt(job_id, 0, 4).payload_cid)


@pytest.mark.long
def test_payload_excluded_twice_is_not_restored_again(world: World, five: list[str]) -> None:
    job_id = _running(world, five)
    _round_with_an_outlier(world, job_id, five)
    _sent(world, five[4])
    for node in five[:4]:
        _sent(world, node)
    world.end_round(job_id)
    _round_with_an_outlier(world, job_id, five)  # of round 2, with the restored payload
    world.end_round(job_id)
    for node in five:
        _sent(world, node)
    world.end_round(job_id)
    twice = world.attempt(job_id, 2, 4)
    assert (twice.included, twice.exclusion_reason) == (False, "opposed")
    assert twice.start_restored_payload_cid == world.attempt(job_id, 0, 4).payload_cid
    assert {unit.start_restored_payload_cid for unit in world.units(job_id, slot=4) if unit.round > 2} == {None}


def test_refuted_payload_is_not_restored(world: World, five: list[str]) -> None:
    job_id = _running(world, five)
    _round_with_an_outlier(world, job_id, five)
    before = world.read(job_id).current_round
    world.aggregate(job_id)
    assert world.read(job_id).current_round == before + 1
    world.call(units.reject_unit, world.attempt(job_id, 0, 4).id, "incorrect_computation")
    _sent(world, five[4])
    world.dispatch(job_id)
    assert world.attempt(job_id, 2, 4).start_restored_payload_cid is None


def test_oversized_payload_is_not_restored(world: World, nodes: list[str]) -> None:
    world.be_patient()
    job_id = _running(world, nodes)
    loud = world.work(nodes[3])
    loud.hand_in(encode(loud.spec, np.where(loud.vector > 0, 1e6, -1e6).astype(np.float32)))
    loud.deliver()
    world.deliver_and_go_on(job_id, *nodes[:3])
    world.end_round(job_id)
    assert (world.attempt(job_id, 0, 3).included, world.attempt(job_id, 0, 3).to_restore) == (False, False)
    world.deliver_and_go_on(job_id, *nodes)
    third = world.attempt(job_id, 2, 3)
    assert (third.start_slot_state_cid, third.start_restored_payload_cid) == (
        world.attempt(job_id, 1, 3).slot_state_cid,
        None,
    )


def _close_without(world: World, job_id: str) -> None:
    offered = update(Unit).where(Unit.job_id == job_id)
    long_ago, took = utc_now() - timedelta(days=1), text("COALESCE(uploaded_at - interval '10000 seconds', now())")
    world.execute(offered.values(created_at=long_ago))
    world.aggregate(job_id)
    world.execute(offered.values(created_at=took))
    world.dispatch(job_id)


def test_late_declared_units_are_restored_in_order(world: World, nodes: list[str]) -> None:
    world.be_patient()
    world.settings = world.settings.model_copy(update={"round_deadline_seconds": 50_000.0})
    job_id = _running(world, nodes, rounds=10)
    first = world.commit_and_go_on(job_id, nodes[3])
    second = world.commit_and_go_on(job_id, nodes[3])
    while world.read(job_id).current_round < MAX_STALENESS + 2:
        world.deliver_and_go_on(job_id, *nodes[:3])
        _close_without(world, job_id)
    first.complete()
    second.complete()
    world.dispatch(job_id)
    late = [world.attempt(job_id, round_, 3) for round_ in (0, 1)]
    assert [(unit.included, unit.exclusion_reason) for unit in late] == [(False, "too_late")] * 2
    restored = []
    for _ in late:
        work = world.work(nodes[3])
        restored.append(work.lease.task["restored_payload_cid"])
        if len(restored) == 1:
            assert work.lease.task["slot_state_cid"] == second.slot_state_cid
        work.commit()
        world.dispatch(job_id)
    assert restored == [unit.payload_cid for unit in late]
