"""Tree aggregation by hand: six nodes in three regions."""

from typing import Any

import pytest
from sqlalchemy import select, update

from kit.jobs.jobs_fixtures import World
from market.providers.models import Provider
from market.training.aggregation import service as aggregation
from market.training.aggregation import tree
from market.training.aggregation.models import AggregationLeaf


@pytest.fixture(name="far_apart")
def nodes_far_apart(world: World) -> list[str]:
    """Six nodes in three regions, in a market that aggregates every round by a tree."""
    world.settings = world.settings.model_copy(update={"tree_aggregation_min_values": 0})
    addresses = [world.node() for _ in range(6)]
    for address, trip in zip(addresses, (5, 200, 9, 400, 205, None), strict=True):
        world.execute(update(Provider).where(Provider.address == address).values(round_trip_ms=trip))
    return addresses


def leaves_of(world: World, job_id: str) -> list[AggregationLeaf]:
    return world.all(select(AggregationLeaf).where(AggregationLeaf.job_id == job_id).order_by(AggregationLeaf.leaf))


def work_leaves(world: World, job_id: str) -> None:
    """Let each leaf work once; the last one finds all summaries, and sums."""
    for leaf in leaves_of(world, job_id):
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, leaf.leaf)


def work(world: World, task: tuple[str, tuple[str, ...]]) -> None:
    name, arguments = task
    if name == "jobs.aggregate":
        world.aggregate(arguments[0])
    elif name == "jobs.aggregate_leaf":
        tree.work_leaf(
            world.database, world.settings, world.storage, arguments[0], int(arguments[1]), int(arguments[2])
        )


def in_one_place(world: World, job_id: str) -> str:
    """Return the CID of the round's checkpoint aggregated without a tree; nothing is applied."""
    built: list[str] = []

    def note(session: Any, job: str, round_: Any, stored: Any, verdicts: Any) -> None:
        built.append(stored.cid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregation, "_apply", note)
        settings = world.settings.model_copy(update={"tree_aggregation_min_values": 1 << 40})
        aggregation.aggregate(world.database, settings, world.storage, job_id)
    return built[0]
