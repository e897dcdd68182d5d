"""Published replica states: pins of distinct nodes, and releases by nodes and storage."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from kit.jobs.jobs_fixtures import World
from kit.payments.cancelled_jobs import cancel_now
from sqlalchemy import select, update

from market.domain.network import DEVNET
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.events.models import JobEventRow
from market.training.checkpoints.models import StatePin
from market.training.leases import service as leases
from market.training.leases.errors import ResultRefused
from market.training.leases.schemas import CompletePin, LeaseKind
from market.training.replication.pins import MAX_ATTEMPTS
from market.training.retention import service as retention
from market.training.units import service as units
from market.training.units.models import Unit
from zoo_protocol.hashing import from_hex, sha256, to_hex

LONG_AFTER = DEVNET.disputes.longest + timedelta(minutes=1)


@pytest.fixture
def job_id(world: World, nodes: list[str]) -> str:
    return world.running(nodes, rounds=6)


def _published(world: World, job_id: str, nodes: list[str]) -> list[str]:
    done = world.train_round(job_id, nodes)
    assert all(world.publish(node) for node in nodes)
    world.dispatch(job_id)
    return [work.slot_state_cid for work in done]


def _pin_all(world: World, job_id: str, nodes: list[str]) -> list[dict[str, Any]]:
    asked = []
    while True:
        before = len(asked)
        for node in nodes:
            lease = world.pull(node, LeaseKind.PIN)
            if lease is not None:
                asked.append(lease.task)
                _prove(world, node, lease)
        world.dispatch(job_id)
        if len(asked) == before:
            return asked


def _prove(world: World, node: str, lease: Any) -> None:
    content = b"".join(world.storage.get(cid, max_bytes=2**24) for cid in lease.task["cids"])
    world.complete(
        lease, node, CompletePin(token=lease.token, proof=to_hex(sha256(from_hex(lease.task["nonce"]) + content)))
    )


def _holders(world: World, job_id: str) -> dict[str, list[str]]:
    query = select(Unit.slot_state_cid, StatePin.provider).join(StatePin, StatePin.unit_id == Unit.id)
    found: dict[str, list[str]] = {}
    for cid, provider in world.tuples(query.where(Unit.job_id == job_id)):
        found.setdefault(cid, []).append(provider)
    return found


def _release(world: World, now: datetime | None = None) -> int:
    return retention.unpin_states(world.database, world.storage, DEVNET, now or utc_now())


def test_published_state_is_pinned_evenly_by_three_nodes(world: World, nodes: list[str], job_id: str) -> None:
    cids = _published(world, job_id, nodes)
    asked = _pin_all(world, job_id, nodes)
    holders = _holders(world, job_id)
    assert set(holders) == set(cids)
    assert [len(set(holders[cid])) for cid in cids] == [3] * 4
    assert all(nodes[slot] not in holders[cid] for slot, cid in enumerate(cids))  # its own has it anyway
    kept = [sum(node in who for who in holders.values()) for node in nodes]
    assert kept == [3] * 4
    assert all(task["cids"] == [task["checkpoint_cid"]] for task in asked if "slot" in task)
    assert len(world.all(select(JobEventRow.data).where(JobEventRow.kind == "slot_state_pin"))) == 12
    assert _pin_all(world, job_id, nodes) == []  # each node is asked once


def test_missing_state_is_unproven_and_others_are_asked(world: World, nodes: list[str], job_id: str) -> None:
    [cid, *_] = _published(world, job_id, nodes)
    for node in nodes:
        while (lease := world.pull(node, LeaseKind.PIN)) is not None:
            if lease.task["cids"] == [cid] and node == nodes[1]:
                with pytest.raises(ResultRefused) as refused:
                    world.complete(lease, node, CompletePin(token=lease.token, proof="0x" + "00" * 32))
                assert refused.value.extra["reason"] == "wrong_pin_proof"
            else:
                _prove(world, node, lease)
    world.dispatch(job_id)
    _pin_all(world, job_id, nodes)
    assert len(set(_holders(world, job_id)[cid])) == 3


def test_failing_pinner_is_asked_last_and_thrice(world: World, nodes: list[str], job_id: str) -> None:
    """Otherwise the market would ask a node without a disk forever."""
    cids = _published(world, job_id, nodes)
    in_turn = []
    while turn := _fail_all(world, nodes):
        in_turn.append(turn)
        assert len(in_turn) <= len(nodes) * MAX_ATTEMPTS
        world.dispatch(job_id)
    asked = Counter(one for turn in in_turn for one in turn)
    pinned = {cid for cid, _ in asked}
    assert pinned > set(cids)  # the checkpoint is pinned too
    assert asked == Counter({(cid, node): MAX_ATTEMPTS for cid in pinned for node in nodes})
    for cid in pinned:
        first, second = ([node for one, node in turn if one == cid] for turn in in_turn[:2])
        assert len(first) == 3
        assert set(nodes) - set(first) <= set(second)


def _fail_all(world: World, nodes: list[str]) -> list[tuple[str, str]]:
    """Fail every open pin lease; return (CID, node) of each."""
    asked = []
    for node in nodes:
        while (lease := world.pull(node, LeaseKind.PIN)) is not None:
            asked.append((lease.task["checkpoint_cid"], node))
            world.call(leases.fail, lease.id, node, lease.token, "input_missing", "a test")
    return asked


@pytest.mark.long
def test_older_state_is_released_after_newer_proof(world: World, nodes: list[str], job_id: str) -> None:
    older = _published(world, job_id, nodes)
    _pin_all(world, job_id, nodes)
    newer = _published(world, job_id, nodes)
    world.verify_uploaded(job_id)
    for node in nodes:  # the checkpoint that names the newer ones is proven, they are not
        while (lease := world.pull(node, LeaseKind.PIN)) is not None:
            if "slot" in lease.task:
                world.call(leases.fail, lease.id, node, lease.token, "input_missing", "a test")
            else:
                _prove(world, node, lease)
    assert _release(world, utc_now() + LONG_AFTER) == 0
    world.dispatch(job_id)
    assert all(world.storage.is_pinned(cid) for cid in older)
    asked = [task for task in _pin_all(world, job_id, nodes) if "slot" in task]
    assert asked[0]["release"] == []
    world.verify_uploaded(job_id)
    world.train_round(job_id, nodes)  # the units that started from the older ones are past
    assert _release(world) == 0  # but can still be disputed
    later = utc_now() + LONG_AFTER
    assert _release(world, later) == 4
    assert not any(world.storage.is_pinned(cid) for cid in older)
    assert all(world.storage.is_pinned(cid) for cid in newer)
    assert _release(world, later) == 0


@pytest.mark.long
def test_nodes_receive_release_of_older_states(world: World, nodes: list[str], job_id: str) -> None:
    first = _published(world, job_id, nodes)
    _pin_all(world, job_id, nodes)
    held = _holders(world, job_id)
    second = _published(world, job_id, nodes)
    assert not any(task["release"] for task in _pin_all(world, job_id, nodes) if "slot" in task)
    _published(world, job_id, nodes)
    asked = [task for task in _pin_all(world, job_id, nodes) if "slot" in task]
    assert {cid for task in asked for cid in task["release"]} == set(first)
    left = _holders(world, job_id)
    assert not set(left) & set(first)  # each node was asked once to release those that it had
    assert sum(len(held[cid]) for cid in first) == 12
    assert all(len(left[cid]) == 3 for cid in second)


def test_state_needed_by_replica_is_not_released(world: World, nodes: list[str], job_id: str) -> None:
    _published(world, job_id, nodes)
    world.execute(update(Unit).values(slot_state_round=None))  # as if revealed for a sampled unit
    world.verify_uploaded(job_id)
    begun = update(Unit).where(Unit.round == 1)  # those that started from them have come to naught
    world.execute(begun.values(status="lost", decided_at=utc_now()))
    assert _release(world, utc_now() + LONG_AFTER) == 0
    world.execute(update(Job).values(status="failed"))
    assert _release(world, utc_now() + LONG_AFTER) == 4


@pytest.mark.long
def test_last_states_stay_with_checkpoint_of_ended_job(world: World, nodes: list[str], job_id: str) -> None:
    cids = _published(world, job_id, nodes)
    _pin_all(world, job_id, nodes)
    cancel_now(world, job_id)
    world.verify_uploaded(job_id)
    assert _release(world, utc_now() + LONG_AFTER) == 0
    assert all(world.storage.is_pinned(cid) for cid in cids)


def test_start_states_of_refuted_unit_stay_as_evidence(world: World, nodes: list[str], job_id: str) -> None:
    _published(world, job_id, nodes)
    world.train_round(job_id, nodes)
    [refuted] = world.units(job_id, round=1, slot=0)
    world.call(units.reject_unit, refuted.id, "incorrect_computation")
    world.verify_uploaded(job_id)
    world.execute(update(Job).values(status="settled"))
    world.execute(update(Unit).where(Unit.job_id == job_id).values(slot_state_round=None))
    assert _release(world, utc_now() + LONG_AFTER) == 3
    assert world.storage.is_pinned(refuted.start_slot_state_cid or "")
