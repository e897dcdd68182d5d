"""A node's link limits its next payload; commitment and replay use that limit."""

from datetime import timedelta
from typing import Any

import pytest
from kit.jobs.jobs_fixtures import World
from kit.jobs.unit_results import Work
from kit.payments.cancelled_jobs import cancel_now
from sqlalchemy import update

from market.platform.db.base import utc_now
from market.training.leases.errors import ResultRefused
from market.training.rounds.state import REPORT_OF_ANOTHER_JOB
from market.training.units import service as units
from market.training.units.models import Unit
from training_gym.compress.link_adaptation import SHARE, top_k_levels, with_top_k
from training_gym.compress.payload_format import encode, payload_size, top_k_of

SLOW = {"compute_ms": 1000, "transfer_ms": 9000, "bytes_up": 1, "bytes_down": 1, "up_bytes_per_second": 1000}
FAST = SLOW | {"up_bytes_per_second": 10**9}


def _second_round(world: World, nodes: list[str]) -> tuple[str, Work]:
    job_id = world.running(nodes)
    for node in nodes:
        work = world.work(node, report=SLOW if node == nodes[0] else FAST)
        work.deliver()
    world.close_round(job_id)
    return job_id, world.work(nodes[0])


def test_slow_node_gets_lower_compression_level_everywhere(world: World, nodes: list[str]) -> None:
    full, *_, least = top_k_levels(world.spec)
    job_id, slow = _second_round(world, nodes)
    assert [unit.top_k for unit in world.units(job_id, round=0)] == [full] * 4
    assert [unit.top_k for unit in world.units(job_id, round=1)] == [least, full, full, full]
    assert slow.spec.training.top_k == least  # announced in the lease
    assert top_k_of(slow.payload) == least
    assert len(slow.payload) < len(encode(world.spec, slow.vector)) / 8
    slow.deliver()
    [unit] = world.units(job_id, round=1, slot=0)
    replayed = world.call(units.unit_facts, unit.id).spec
    assert replayed == slow.lease.task["spec"]  # for verifiers and evidence
    world.deliver_all(nodes[1:])
    world.aggregate(job_id)
    assert [unit.included for unit in world.units(job_id, round=1)] == [True] * 4


def _first_unit(world: World, nodes: list[str], **options: Any) -> tuple[str, int | None]:
    job_id = world.running(nodes, **options)
    [unit] = world.units(job_id, round=0, slot=0)
    return job_id, unit.top_k


def _reported(world: World, nodes: list[str], report: dict[str, int]) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0], report=report)
    work.deliver()
    cancel_now(world, job_id)


def test_first_unit_uses_newest_report_of_other_job(world: World, nodes: list[str]) -> None:
    full, *_, least = top_k_levels(world.spec)
    _reported(world, nodes, SLOW)
    job_id, top_k = _first_unit(world, nodes)
    assert top_k == least
    assert [unit.top_k for unit in world.units(job_id, round=0)] == [least, full, full, full]  # others reported nothing


def test_report_of_other_job_scales_by_unit_work(world: World, nodes: list[str]) -> None:
    """A link that carries half of a payload carries all of it in a unit ten times as long."""
    full, half, *_ = top_k_levels(world.spec)
    room = payload_size(with_top_k(world.spec, half))
    _reported(world, nodes, SLOW | {"compute_ms": 1000, "up_bytes_per_second": round(1.2 * room / SHARE)})
    job_id, top_k = _first_unit(world, nodes)
    assert top_k == half
    cancel_now(world, job_id)
    longer = world.spec.to_dict()
    longer["training_config"]["inner_steps"] *= 10
    assert _first_unit(world, nodes, document=longer)[1] == full


def test_report_of_other_job_expires_after_day(world: World, nodes: list[str]) -> None:
    full, *_, least = top_k_levels(world.spec)
    _reported(world, nodes, SLOW)
    for age, expected in ((REPORT_OF_ANOTHER_JOB - timedelta(minutes=5), least), (REPORT_OF_ANOTHER_JOB, full)):
        world.execute(update(Unit).values(uploaded_at=utc_now() - age))
        job_id, top_k = _first_unit(world, nodes)
        assert top_k == expected
        cancel_now(world, job_id)


@pytest.mark.parametrize(
    ("entries", "reason"), [(4096, "payload_missing"), (121, "payload_missing"), (17, "payload_malformed")]
)
def test_payload_of_other_compression_level_is_refused(
    world: World, nodes: list[str], entries: int, reason: str
) -> None:
    job_id, slow = _second_round(world, nodes)
    assert slow.spec.training.top_k == 24
    slow.hand_in(encode(with_top_k(slow.spec, entries), slow.vector))
    slow.commit()
    with pytest.raises(ResultRefused) as refused:
        slow.complete()
    assert refused.value.extra["reason"] == reason
    assert world.units(job_id, round=1, slot=0)[0].reason == reason
