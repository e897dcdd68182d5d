"""What a node reports of its link decides how much its next unit sends; commitment and replay are of that."""

import pytest
from jobs_world import World
from unit_work import Work

from market.jobs import aggregation, units
from market.jobs.errors import ResultRefused
from training_gym.adaptation import ladder, with_top_k
from training_gym.compression.wire import encode, top_k_of

SLOW = {"compute_ms": 1000, "transfer_ms": 9000, "bytes_up": 1, "bytes_down": 1, "up_bytes_per_second": 1000}
FAST = SLOW | {"up_bytes_per_second": 10**9}


def _second_round(world: World, nodes: list[str]) -> tuple[str, Work]:
    """A job in its second round, and the work of the node that reported a slow link in the first."""
    job_id = world.running(nodes)
    for node in nodes:
        work = world.work(node, report=SLOW if node == nodes[0] else FAST)
        work.commit()
        work.complete()
    aggregation.aggregate(world.database, world.settings, world.storage, job_id)
    world.dispatch(job_id)
    return job_id, world.work(nodes[0])


def test_a_slow_node_is_told_to_send_less_and_everything_follows_it(world: World, nodes: list[str]) -> None:
    full, *_, least = ladder(world.spec)
    job_id, slow = _second_round(world, nodes)
    assert [unit.top_k for unit in world.units(job_id, round=0)] == [full] * 4
    assert [unit.top_k for unit in world.units(job_id, round=1)] == [least, full, full, full]
    assert slow.spec.training.top_k == least  # announced in the lease
    assert top_k_of(slow.payload) == least
    assert len(slow.payload) < len(encode(world.spec, slow.vector)) / 8
    slow.commit()
    slow.complete()
    [unit] = world.units(job_id, round=1, slot=0)
    replayed = world.rows(lambda session: units.unit_facts(session, unit.id)).spec
    assert replayed == slow.lease.task["spec"]  # what verifiers and evidence get
    for node in nodes[1:]:
        world.deliver(node)
    aggregation.aggregate(world.database, world.settings, world.storage, job_id)
    assert [unit.included for unit in world.units(job_id, round=1)] == [True] * 4


@pytest.mark.parametrize(
    ("entries", "reason"), [(4096, "payload_missing"), (121, "payload_missing"), (17, "payload_malformed")]
)
def test_a_node_that_sends_another_amount_than_it_was_told_is_refused(
    world: World, nodes: list[str], entries: int, reason: str
) -> None:
    """More than it may is not even read; less does not decode as what it was told."""
    job_id, slow = _second_round(world, nodes)
    assert slow.spec.training.top_k == 34
    slow.hand_in(encode(with_top_k(slow.spec, entries), slow.vector))
    slow.commit()
    with pytest.raises(ResultRefused) as refused:
        slow.complete()
    assert refused.value.extra["reason"] == reason
    assert world.units(job_id, round=1, slot=0)[0].reason == reason
