"""Memory of workers, against a job's estimate and before a round."""

import pytest
from kit.jobs.jobs_fixtures import World
from structlog.testing import capture_logs

from market.orders.errors import InvalidOrder
from market.orders.terms import require_aggregation_memory
from market.settings import Settings
from market.training.aggregation import memory
from training_gym.aggregate.memory import aggregation_memory_bytes
from training_gym.runtime.memory import measured

GIB = 1024**3


def limited(settings: Settings, gib: float) -> Settings:
    return settings.model_copy(update={"worker_memory_gib": gib})


def test_smallest_reported_worker_bounds_jobs(world: World) -> None:
    with world.database.transaction() as session:
        assert memory.smallest_worker(session, world.settings) == measured().total
        memory.report(session, limited(world.settings, 0.5), "small")
        memory.report(session, world.settings, "large")
        memory.report(session, limited(world.settings, 0.25), "small")
        assert memory.smallest_worker(session, world.settings) == GIB // 4
        assert memory.smallest_worker(session, limited(world.settings, 0.125)) == GIB // 8
    with pytest.raises(InvalidOrder, match=r"needs 2.00 GiB; this market's smallest worker has 0.25 GiB") as refused:
        require_aggregation_memory(2 * GIB, GIB // 4)
    assert refused.value.extra == {"reason": "aggregation_too_large"}


def test_round_waits_for_free_memory(world: World, nodes: list[str]) -> None:
    job_id = world.delivered_job(nodes)
    settings, world.settings = world.settings, limited(world.settings, 1e-9)
    with capture_logs() as logs:
        world.aggregate(job_id)
    needed = aggregation_memory_bytes(world.spec, len(nodes))
    assert [(one["needed_bytes"], one["free_bytes"]) for one in logs if one["event"] == "aggregation_memory_short"] == [
        (needed, 1)
    ]
    assert world.read(job_id).current_round == 0
    world.settings = settings
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1
