"""A node that dies, freezes, lags or sends false work: the round closes with a reason.

Stages: the lease is offered; it is held and the unit trains; the unit is committed and not uploaded; it is uploaded.
Slow nodes are in ``test_late_payloads``; false work that only a replay finds in ``test_verification_flow``.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from sqlalchemy import func, insert, select, update

from market.domain.lifecycle import OUT_OF_MEMORY, UnitStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers.models import ProviderEpoch
from market.training.leases import expiry
from market.training.leases import service as leases
from market.training.leases.errors import LeaseLost, ResultRefused
from market.training.leases.models import Lease
from market.training.matching.spares import SLOW_UNITS
from market.training.units import repository as units_repository
from market.training.units import service as units
from market.training.units.models import Unit
from zoo_protocol.payments.job_record import MAX_ROLLBACKS

Stage = Callable[[World, str], Work | None]


def _committed(world: World, node: str) -> Work:
    work = world.work(node)
    work.commit()
    return work


STAGES: dict[str, Stage] = {"offered": lambda *_: None, "training": World.work, "committed": _committed}


def _silence(world: World, job_id: str, node: str) -> None:
    gone = update(Lease).where(Lease.job_id == job_id, Lease.holder == node, Lease.status.in_(("offered", "active")))
    world.execute(gone.values(expires_at=utc_now() - timedelta(seconds=1)))
    expiry.expire_due(world.database, utc_now())


def _close(world: World, job_id: str) -> None:
    world.dispatch(job_id)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1


def _unit(world: World, job_id: str, node: str) -> Unit:
    return next(unit for unit in world.units(job_id, round=0) if unit.provider == node)


def _holders(world: World, job_id: str) -> set[str | None]:
    return {slot.provider for slot in world.call(jobs_repository.slots, job_id)}


@pytest.mark.parametrize("stage", STAGES)
def test_node_failing_before_upload_is_replaced(world: World, nodes: list[str], stage: str) -> None:
    job_id = world.running(nodes)
    work = STAGES[stage](world, nodes[0])
    spare = world.node()
    world.deliver_all(nodes[1:])
    _silence(world, job_id, nodes[0])
    world.dispatch(job_id)
    lost = _unit(world, job_id, nodes[0])
    assert (lost.status, lost.reason) == (UnitStatus.LOST, "node_silent")
    if work is not None:
        with pytest.raises(LeaseLost):
            work.complete()
    world.deliver(spare)
    _close(world, job_id)
    assert [unit.included for unit in world.units(job_id, round=0)] == [None, True, True, True, True]


@pytest.mark.parametrize("stage", STAGES)
def test_round_closes_with_others_when_no_hot_spare(world: World, nodes: list[str], stage: str) -> None:
    job_id = world.running(nodes)
    STAGES[stage](world, nodes[0])
    world.deliver_all(nodes[1:])
    world.call(leases.providers.record_shutdown, nodes[0])
    _silence(world, job_id, nodes[0])
    _close(world, job_id)
    assert _unit(world, job_id, nodes[0]).reason == "node_silent"


def test_node_failing_after_upload_does_not_delay_round(world: World, nodes: list[str]) -> None:
    job_id = world.delivered_job(nodes)
    _silence(world, job_id, nodes[0])
    _close(world, job_id)
    assert [unit.included for unit in world.units(job_id, round=0)] == [True] * 4


@pytest.mark.parametrize("stage", ["offered", "training"])
def test_slow_commitment_loses_round_but_not_standing(world: World, nodes: list[str], stage: str) -> None:
    job_id = world.running(nodes)
    STAGES[stage](world, nodes[0])
    world.deliver_all(nodes[1:])
    world.change(Job, job_id, round_started_at=utc_now() - timedelta(days=1))
    _close(world, job_id)
    lost = _unit(world, job_id, nodes[0])
    assert (lost.status, lost.reason) == (UnitStatus.LOST, "round_closed")


def test_slow_node_gets_no_more_unpaid_units(world: World, nodes: list[str]) -> None:
    """Unless the others are too few: two of its units in a row were lost."""
    spec = replace(world.spec, training=replace(world.spec.training, rounds=6))
    job_id = world.running(nodes, document=spec.to_dict())
    for done in range(3):
        assert len(world.units(job_id, round=done, slot=0)) == (done < 2)
        world.deliver_all(nodes[1:])
        world.change(Job, job_id, round_started_at=utc_now() - timedelta(days=1))
        world.dispatch(job_id)
        world.aggregate(job_id)
        world.dispatch(job_id)
    assert _holders(world, job_id) == {None, *nodes[1:]}
    found = [world.call(units_repository.slow_nodes, job_id, since, 2) for since in (0, 1)]
    assert found == [{nodes[0]}, set()]  # it has another chance some rounds later
    world.call(leases.remove_node_from_jobs, nodes[1], "jailed")
    world.call(leases.remove_node_from_jobs, nodes[2], "jailed")
    world.dispatch(job_id)
    assert nodes[0] in _holders(world, job_id)


def _outlast(world: World, job_id: str) -> None:
    world.start_round(job_id, ago=world.settings.round_timeout_seconds + 1)
    world.dispatch(job_id)


@pytest.mark.parametrize(("count", "hung"), [(1, 1), (2, 1), (4, 2)])
def test_hung_node_of_missing_quorum_is_replaced(world: World, nodes: list[str], count: int, hung: int) -> None:
    """Its heartbeats keep the lease."""
    own = nodes[:count]
    job_id = world.running(own, rounds=3)
    held = [world.work(node) for node in own[:hung]]
    world.deliver_all(own[hung:])
    spares = [world.node() for _ in range(5)]
    _outlast(world, job_id)
    assert [_unit(world, job_id, node).reason for node in own[:hung]] == ["round_closed"] * hung
    with pytest.raises(LeaseLost):
        held[0].commit()
    world.dispatch(job_id)
    others = [node for node in world.holders(job_id) if node not in own]
    assert set(others) < {*nodes[count:], *spares}
    world.deliver_all([node or "" for node in others])
    _close(world, job_id)
    assert {unit.included for unit in world.units(job_id, round=0, status="uploaded")} == {True}
    assert world.all(select(func.coalesce(func.sum(ProviderEpoch.lost), 0))) == [0]


def test_hung_nodes_are_replaced_by_fewer_free_ones(world: World, nodes: list[str]) -> None:
    """The replaced one completes the quorum."""
    job_id, free = world.running(nodes), world.node()
    world.deliver_all(nodes[:2])
    for node in nodes[2:]:
        world.work(node)
    _outlast(world, job_id)
    world.dispatch(job_id)
    assert world.holders(job_id) == [*nodes[:2], free, nodes[3]]
    world.deliver(free)
    world.start_round(job_id, ago=world.settings.round_deadline_seconds + 1)
    _close(world, job_id)
    assert len(world.units(job_id, round=0, included=True)) == 3


@pytest.mark.parametrize("spares", [0, 1])
def test_job_fails_when_no_other_node_delivers(world: World, nodes: list[str], spares: int) -> None:
    job_id = world.running(nodes)
    world.deliver_all(nodes[:2])
    for node in nodes[2:]:
        world.work(node)
    for _ in range(2 * spares):
        world.node()
    for done in range(2):
        assert (world.read(job_id).status == "running") == (done <= spares)
        _outlast(world, job_id)
        world.dispatch(job_id)
    assert (world.read(job_id).status, world.read(job_id).reason) == ("failed", "no_capacity")


@pytest.mark.parametrize(("lost", "status"), [(2, "running"), (3, "failed")])
def test_hung_node_gets_no_unit_of_round_again(world: World, nodes: list[str], lost: int, status: str) -> None:
    """A free node that fails too often takes none either."""
    for node in nodes[2:]:
        world.call(leases.providers.record_shutdown, node)
    job_id, other = world.running(nodes[:1], rounds=3), nodes[1]
    held = world.work(nodes[0])
    failed = {"job_id": job_id, "round": 0, "slot": 0, "provider": other, "status": "lost", "reason": "crashed"}
    failed["start_checkpoint_cid"] = world.checkpoint(job_id, 0)
    world.execute(insert(Unit).values([failed] * lost))
    _outlast(world, job_id)
    world.dispatch(job_id)
    assert world.read(job_id).status == status
    assert world.holders(job_id) == [other if status == "running" else None]
    with pytest.raises(LeaseLost):
        held.commit()
    if status == "running":
        lease = world.pulled(other)
        world.call(leases.fail, lease.id, other, lease.token, "crashed", "")
        world.dispatch(job_id)
        assert world.holders(job_id) == [None]


def test_reason_of_market_is_not_taken_from_node(world: World, nodes: list[str]) -> None:
    """Otherwise a node that fails its unit so would keep hung nodes from being replaced."""
    job_id = world.running(nodes[:2])
    lease = world.pulled(nodes[0])
    world.call(leases.fail, lease.id, nodes[0], lease.token, "round_closed", "")
    world.dispatch(job_id)
    taken = world.holders(job_id)[0] or ""
    world.deliver(taken)
    world.work(nodes[1])
    _outlast(world, job_id)
    world.dispatch(job_id)
    assert world.read(job_id).status == "running"
    assert nodes[1] not in world.holders(job_id)


def test_stopped_node_is_asked_again_only_after_return(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    world.call(leases.fail, work.lease.id, nodes[0], work.lease.token, "node_stopping", "told to stop")
    world.deliver_all(nodes[1:])
    _close(world, job_id)
    assert [unit.provider for unit in world.units(job_id, round=0, slot=0)] == [nodes[0]]
    world.dispatch(job_id)
    assert world.units(job_id, round=1, slot=0) == []
    world.call(leases.providers.heartbeat, nodes[0])
    world.dispatch(job_id)
    assert [unit.provider for unit in world.units(job_id, round=1, slot=0)] == [nodes[0]]


def test_false_upload_after_commitment_is_refused_at_once(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    spare = world.node()
    work = _committed(world, nodes[0])
    work.payload = work.payload[:-1] + bytes([work.payload[-1] ^ 1])
    with pytest.raises(ResultRefused):
        work.complete()
    assert _unit(world, job_id, nodes[0]).reason == "payload_mismatch"
    world.dispatch(job_id)
    world.deliver_all([spare, *nodes[1:]])
    _close(world, job_id)


def test_unit_refuted_during_open_round_is_retrained(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    spare = world.node()
    world.deliver(nodes[0])
    false = _unit(world, job_id, nodes[0])
    world.call(units.reject_unit, false.id, "incorrect_computation")
    world.call(leases.remove_node_from_jobs, nodes[0], "jailed")
    retire = leases.providers.record_shutdown
    world.call(retire, nodes[0])
    world.dispatch(job_id)
    world.deliver_all([spare, *nodes[1:]])
    _close(world, job_id)
    assert [(unit.provider, unit.included) for unit in world.units(job_id, round=0, slot=0)] == [
        (nodes[0], None),
        (spare, True),
    ]
    assert _unit(world, job_id, nodes[0]).reason == "incorrect_computation"


@pytest.mark.parametrize(
    ("stage", "codes", "lost"),
    [
        ("training", [OUT_OF_MEMORY], 0),
        ("training", [OUT_OF_MEMORY, OUT_OF_MEMORY], 1),
        ("training", ["input_missing"], 1),
        ("committed", [OUT_OF_MEMORY], 1),
        ("training", ["diverged"], 0),
        ("committed", ["diverged"], 1),
    ],
)
def test_blameless_unit_costs_no_reliability(
    world: World, nodes: list[str], stage: str, codes: list[str], lost: int
) -> None:
    job_id = world.running(nodes)
    for code in codes:
        work = STAGES[stage](world, nodes[0])
        assert work is not None
        world.call(leases.fail, work.lease.id, nodes[0], work.lease.token, code, "a test")
        world.dispatch(job_id)
    counted = select(func.coalesce(func.sum(ProviderEpoch.lost), 0)).where(ProviderEpoch.provider == nodes[0])
    assert world.all(counted) == [lost]


@pytest.mark.parametrize(
    ("code", "change", "lost"),
    [
        ("diverged", {}, 1),
        ("diverged", {"start_slot_state_cid": "another"}, 0),
        ("diverged", {"top_k": 512}, 0),  # another payload
        ("out_of_range", {}, 1),
        ("out_of_range", {"start_slot_state_cid": "another"}, 0),
        ("out_of_range", {"top_k": 512}, 1),  # of the same tokens
    ],
)
def test_refuted_claim_on_job_costs_reliability(
    world: World, nodes: list[str], code: str, change: dict[str, Any], lost: int
) -> None:
    job_id = world.running(nodes[:2])
    work = world.work(nodes[0])
    world.call(leases.fail, work.lease.id, nodes[0], work.lease.token, code, "a test")
    [claimed] = world.units(job_id, status="lost")
    world.change(Unit, claimed.id, **change)
    world.dispatch(job_id)
    unit = world.attempt(job_id, 0, claimed.slot)
    world.deliver(unit.provider)
    counted = select(func.coalesce(func.sum(ProviderEpoch.lost), 0)).where(ProviderEpoch.provider == nodes[0])
    assert world.all(counted) == [0]
    world.verify_uploaded(job_id)
    assert world.all(counted) == [lost]


def test_divergence_of_others_makes_no_node_slow(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=5)
    for _ in range(MAX_ROLLBACKS):
        world.diverge(nodes[:3])
        world.end_round(job_id)
    assert [unit.reason for unit in world.units(job_id, slot=3)] == ["rolled_back"] * MAX_ROLLBACKS + [None]
    assert world.call(units_repository.slow_nodes, job_id, 0, SLOW_UNITS) == set()
