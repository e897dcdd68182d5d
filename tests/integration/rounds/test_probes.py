"""Probes of a job's shapes: nodes that compute otherwise than most leave the job at no cost."""

import pytest
from kit.errors import raises_code
from kit.jobs.jobs_fixtures import World
from sqlalchemy import func, select

from market.domain.nodes.probes import dissenting_nodes
from market.providers.models import ProviderEpoch
from market.training.leases.errors import LeaseLost, WrongStep

USUAL, OTHER = "0x" + "11" * 32, "0x" + "22" * 32


@pytest.mark.parametrize(
    ("probes", "is_complete", "left_out"),
    [
        ("", True, ""),
        ("aX bX", True, ""),
        ("aX bY", False, ""),
        ("aX bY", True, "b"),
        ("aX bY cY", False, "a"),
        ("aX bY cX dZ", True, "bd"),
        ("aX bY cX dY eZ", False, "e"),
        ("aX bY cY dX", True, "bc"),
    ],
)
def test_minority_of_probes_dissents(probes: str, is_complete: bool, left_out: str) -> None:
    given = {word[0]: word[1] for word in probes.split()}
    assert dissenting_nodes(given, is_complete=is_complete) == set(left_out)


def reasons(world: World, job_id: str) -> list[str | None]:
    return [unit.reason for unit in world.units(job_id, round=0)]


def lost_units(world: World, node: str) -> int:
    counted = select(func.coalesce(func.sum(ProviderEpoch.lost), 0)).where(ProviderEpoch.provider == node)
    return int(world.all(counted)[0])


def test_dissenting_node_is_replaced_without_cost(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    works = [world.work(node) for node in nodes]
    for work, digest in zip(works, [USUAL, OTHER, USUAL, USUAL], strict=True):
        work.report_probe(digest)
    assert reasons(world, job_id) == [None, "probe_mismatch", None, None]
    with raises_code(LeaseLost, "lease-lost"):
        works[1].commit()
    world.dispatch(job_id)  # it is free, and the only one
    assert nodes[1] not in world.holders(job_id)
    spare = world.node()
    world.dispatch(job_id)
    newcomer = world.work(spare)
    assert newcomer.lease.task["probe"]
    newcomer.report_probe(USUAL)
    assert [unit.provider for unit in world.units(job_id, slot=1)] == [nodes[1], spare]
    assert lost_units(world, nodes[1]) == 0


def test_first_node_leaves_when_majority_differs(world: World) -> None:
    first, second, third = (world.node() for _ in range(3))
    job_id = world.running([first, second])
    works = [world.work(first), world.work(second)]
    works[0].report_probe(USUAL)
    works[1].report_probe(OTHER)
    assert reasons(world, job_id) == [None, "probe_mismatch"]
    world.dispatch(job_id)
    world.work(third).report_probe(OTHER)
    assert reasons(world, job_id) == ["probe_mismatch", "probe_mismatch", None]
    world.dispatch(job_id)
    assert set(world.holders(job_id)) == {second, third}


def test_committed_unit_of_dissenting_node_stays(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    work.report_probe(OTHER)
    work.commit()
    others = [world.work(node) for node in nodes[1:]]
    for other in others:
        other.report_probe(USUAL)
    assert reasons(world, job_id) == [None] * 4
    for delivered in (work, *others):
        delivered.commit()
        delivered.complete()
    spare = world.node()
    world.close_round(job_id)
    world.dispatch(job_id)
    assert [unit.status for unit in world.units(job_id, round=0)] == ["uploaded"] * 4
    assert world.holders(job_id) == [spare, *nodes[1:]]


def test_commitment_needs_one_probe_of_node(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    work = world.work(nodes[0])
    work.wants_probe = False
    with raises_code(WrongStep, "wrong-step"):
        work.commit()
    work.report_probe()
    work.deliver()
    world.deliver_all(nodes[1:])
    world.close_round(job_id)
    world.dispatch(job_id)
    later = world.work(nodes[0])
    assert not later.lease.task["probe"]
    with raises_code(WrongStep, "wrong-step"):
        later.report_probe()
