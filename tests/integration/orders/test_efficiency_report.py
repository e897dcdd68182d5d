"""The efficiency report of a job, from its nodes' reports."""

from datetime import timedelta

import pytest
from kit.jobs.jobs_fixtures import World
from pydantic import ValidationError
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.orders.reports.efficiency import Efficiency, efficiency
from market.orders.views import unit_views
from market.platform.db.base import utc_now
from market.training.leases.schemas import NodeReport
from market.training.units.models import Unit

REPORT = {"compute_ms": 3000, "transfer_ms": 500, "bytes_up": 700, "bytes_down": 900, "up_bytes_per_second": 1400}


def _report(world: World, job_id: str) -> Efficiency:
    found: Efficiency = world.call(lambda session: efficiency(session, session.get(Job, job_id)))
    return found


def _deliver(world: World, node: str, report: dict[str, int]) -> None:
    work = world.work(node, report=report)
    work.deliver()


def _let_pass(world: World, job_id: str, job_seconds: int, unit_seconds: int) -> None:
    def change(session: Session) -> None:
        now = utc_now()
        matched = now - timedelta(seconds=job_seconds)
        session.execute(update(Job).where(Job.id == job_id).values(matched_at=matched, trained_at=now))
        for unit in session.scalars(select(Unit).where(Unit.job_id == job_id, Unit.uploaded_at.is_not(None))):
            assert unit.uploaded_at is not None
            unit.created_at = unit.uploaded_at - timedelta(seconds=unit_seconds)

    world.call(change)


def _shares(found: Efficiency) -> list[float | None]:
    return [found.share_compute, found.share_transfer, found.share_wait]


def test_shares_and_speed_follow_from_reports(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    for node in nodes[:3]:
        _deliver(world, node, REPORT)
    world.deliver(nodes[3])  # reports nothing
    _let_pass(world, job_id, 10, 5)
    found = _report(world, job_id)
    tokens = 4 * 2 * 8  # of a unit: steps, batch, sequence
    assert (found.seconds, found.units_delivered, found.units_reported) == (10, 4, 3)
    assert (found.tokens, found.tokens_per_second) == (4 * tokens, round(4 * tokens / 10, 1))
    assert found.ideal_tokens_per_second == round(3 * tokens / (9 / 4), 1)
    assert _shares(found) == [9 / 40, 1.5 / 40, 29.5 / 40]
    assert (found.bytes_up, found.bytes_down) == (2100, 2700)
    assert found.bytes_up_measured > 0
    assert [(node.provider, node.units, node.up_bytes_per_second) for node in found.nodes] == [
        (node, 1, 1400) for node in sorted(nodes[:3])
    ]
    shown = world.call(lambda session: unit_views(session, session.get(Job, job_id)))
    reported = {unit.provider: unit.report for unit in shown}
    assert reported == {**dict.fromkeys(nodes[:3], NodeReport(**REPORT)), nodes[3]: None}


@pytest.mark.parametrize(("overstated", "counted"), [({"compute_ms": 2**39}, 5.0), ({"transfer_ms": 2**39}, 0.0)])
def test_overstated_time_changes_no_share_beyond_elapsed_time(
    world: World, nodes: list[str], overstated: dict[str, int], counted: float
) -> None:
    job_id = world.running(nodes)
    for node in nodes:
        _deliver(world, node, REPORT | overstated if node == nodes[0] else REPORT)
    _let_pass(world, job_id, 10, 5)
    found = _report(world, job_id)
    assert found.seconds_compute == pytest.approx(9 + counted, abs=0.1)
    assert found.seconds_compute + found.seconds_transfer == pytest.approx(3 * 3.5 + 5, abs=0.1)
    assert sum(share or 0 for share in _shares(found)) == pytest.approx(1)
    overstating = next(node for node in found.nodes if node.provider == nodes[0])
    assert overstating.seconds_compute == pytest.approx(counted, abs=0.1)


def test_shares_sum_to_one_during_concurrent_uploads(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    for node in nodes:
        _deliver(world, node, REPORT | {"compute_ms": 9000, "transfer_ms": 4000})
    _let_pass(world, job_id, 10, 20)  # as far as two units of a slot, one after the other, overlap
    assert _shares(_report(world, job_id)) == [0.9, 0.1, 0]


def test_shares_sum_to_one_after_lost_unit(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    for node in nodes[:3]:
        _deliver(world, node, REPORT)
    _let_pass(world, job_id, 10, 5)
    found = _report(world, job_id)
    assert (found.units_delivered, found.units_reported) == (3, 3)
    assert _shares(found) == [9 / 40, 1.5 / 40, 29.5 / 40]
    assert found.share_of_ideal == pytest.approx(9 / 40, abs=1e-4)


def test_efficiency_is_unknown_before_first_report(world: World, nodes: list[str]) -> None:
    waiting = world.job()
    assert _report(world, waiting).tokens_per_second is None
    job_id = world.running(nodes)
    world.deliver(nodes[0])
    found = _report(world, job_id)
    assert (found.units_reported, found.share_compute, found.share_of_ideal) == (0, None, None)


@pytest.mark.parametrize("wrong", [{"compute_ms": -1}, {"bytes_up": 2**60}, {"up_bytes_per_second": 0}, {"more": 1}])
def test_impossible_report_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        NodeReport.model_validate(REPORT | wrong)
