"""Payloads of a market's rounds in the audit of receipts, which misses none without cause."""

from pathlib import Path
from typing import Any

import pytest
from kit.jobs.audited_rounds import audit_rounds
from kit.jobs.jobs_fixtures import World

from market.training.aggregation import service as aggregation
from zoo_compute.content.blockstore import BlockStore


def left_out(world: World, job_id: str) -> list[tuple[int, int]]:
    rounds, verification = audit_rounds(world, job_id)
    rounds.rollbacks()
    assert verification.findings == []
    return [(unit.round, unit.slot) for unit, _ in rounds.left_out()]


def end_rounds(world: World, job_id: str, nodes: list[str], count: int) -> None:
    for _ in range(count):
        world.deliver_all(nodes)
        world.end_round(job_id)


@pytest.mark.parametrize("is_honest", [True, False])
def test_omission_of_replica_by_market_is_found(
    world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch, is_honest: bool
) -> None:
    """It takes and pays the payloads of the fourth replica, but joins none."""
    job_id, original = world.running(nodes, rounds=4), aggregation._undisputed

    def without_last(units: Any) -> Any:
        return [unit for unit in original(units) if is_honest or unit.slot < 3]

    monkeypatch.setattr(aggregation, "_undisputed", without_last)
    end_rounds(world, job_id, nodes, 4)
    assert left_out(world, job_id) == ([] if is_honest else [(0, 3), (1, 3)])


def test_late_payloads_are_not_left_out(world: World, nodes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One arrives during the aggregation of the next round."""
    job_id, original = world.running(nodes, rounds=4), aggregation._build_checkpoint
    late = world.work(nodes[3])
    late.commit()
    world.deliver_all(nodes[:3])
    world.start_round(job_id, ago=86_400)
    world.end_round(job_id)
    world.deliver_all(nodes[:3])
    world.start_round(job_id, ago=86_400)

    def deliver_meanwhile(*arguments: Any) -> Any:
        late.complete()
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(aggregation, "_build_checkpoint", deliver_meanwhile)
        world.end_round(job_id)
    assert left_out(world, job_id) == []
    end_rounds(world, job_id, nodes, 2)
    assert world.units(job_id, round=0, slot=3)[0].rounds_late == 2
    assert left_out(world, job_id) == []


def test_lost_payload_has_its_reason(world: World, nodes: list[str], ipfs: dict[str, str]) -> None:
    job_id = world.running(nodes, rounds=3)
    world.deliver_all(nodes)
    [gone] = world.units(job_id, slot=3)
    world.storage.unpin(gone.payload_cid or "")  # as a disk may
    assert BlockStore(Path(ipfs["directory"])).collect()
    world.aggregate(job_id)
    world.end_round(job_id)
    end_rounds(world, job_id, nodes, 2)
    assert world.units(job_id, round=0, slot=3)[0].exclusion_reason == "payload_lost"
    assert left_out(world, job_id) == []


def test_payload_from_before_rollback_is_not_left_out(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes, rounds=4)
    late = world.work(nodes[3])
    late.commit()
    world.diverge(nodes[:3])
    world.end_round(job_id)
    late.complete()
    world.dispatch(job_id)
    end_rounds(world, job_id, nodes, 3)
    assert world.units(job_id, round=0, slot=3, status="uploaded")[0].exclusion_reason == "rolled_back"
    assert left_out(world, job_id) == []
