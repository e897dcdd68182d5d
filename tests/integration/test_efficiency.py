"""The efficiency report of a job, from what its nodes said of their units."""

from datetime import timedelta

import pytest
from jobs_world import World
from pydantic import ValidationError
from sqlalchemy import update

from market.db.base import utc_now
from market.jobs.efficiency import Efficiency, efficiency
from market.jobs.lease_schemas import NodeReport
from market.jobs.models import Job

REPORT = {"compute_ms": 3000, "transfer_ms": 500, "bytes_up": 700, "bytes_down": 900, "up_bytes_per_second": 1400}


def _report(world: World, job_id: str) -> Efficiency:
    found: Efficiency = world.rows(lambda session: efficiency(session, session.get(Job, job_id)))
    return found


def test_shares_and_speed_follow_from_what_was_reported(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    for node in nodes[:3]:
        work = world.work(node, report=REPORT)
        work.commit()
        work.complete()
    world.deliver(nodes[3])  # says nothing of itself
    now = utc_now()
    times = update(Job).where(Job.id == job_id).values(matched_at=now - timedelta(seconds=10), trained_at=now)
    world.rows(lambda session: session.execute(times))
    found = _report(world, job_id)
    tokens = 4 * 2 * 8  # of a unit: steps, batch, sequence
    assert (found.seconds, found.units_delivered, found.units_reported) == (10, 4, 3)
    assert (found.tokens, found.tokens_per_second) == (4 * tokens, round(4 * tokens / 10, 1))
    assert found.ideal_tokens_per_second == round(3 * tokens / (9 / 4), 1)
    assert (found.share_compute, found.share_transfer, found.share_wait) == (9 / 40, 1.5 / 40, 29.5 / 40)
    assert (found.bytes_up, found.bytes_down) == (2100, 2700)
    assert found.bytes_up_measured > 0
    assert [(node.provider, node.units, node.up_bytes_per_second) for node in found.nodes] == [
        (node, 1, 1400) for node in sorted(nodes[:3])
    ]


def test_before_anything_is_reported_nothing_is_claimed(world: World, nodes: list[str]) -> None:
    waiting = world.job()
    assert _report(world, waiting).tokens_per_second is None
    job_id = world.running(nodes)
    world.deliver(nodes[0])
    found = _report(world, job_id)
    assert (found.units_reported, found.share_compute, found.share_of_ideal) == (0, None, None)


@pytest.mark.parametrize("wrong", [{"compute_ms": -1}, {"bytes_up": 2**60}, {"up_bytes_per_second": 0}, {"more": 1}])
def test_a_report_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        NodeReport.model_validate(REPORT | wrong)
