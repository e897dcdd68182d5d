"""Tree aggregation: the checkpoint of a single place, with lost or repeated tasks."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kit.engines.watchdog import watch
from kit.errors import raising
from kit.jobs.aggregation_tree_fixtures import in_one_place, leaves_of, nodes_far_apart, work, work_leaves  # noqa: F401  (fixture)
from kit.jobs.jobs_fixtures import World, at_once
from kit.killed import Killed
from kit.waiting import delay
from redis import Redis
from sqlalchemy import text

from market.accounts.service import Principal
from market.jobs import repository as jobs_repository
from market.orders import amendments
from market.training.aggregation import service as aggregation
from market.training.aggregation import tree
from market.training.aggregation.models import AggregationLeaf
from market.training.units import service as units
from training_gym.aggregate import tree as aggregate_tree
from training_gym.units.checkpoint import CheckpointManifest
from worker.app import create_app

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 300  # many times what it takes: other tests run at the same time
NEEDED = {
    "database_url",
    "redis_url",
    "rpc_url",
    "ipfs_api",
    "gateway_url",
    "deployment_file",
    "tree_aggregation_min_values",
}
"""Settings passed to a worker; the others keep their defaults."""


@pytest.mark.parametrize("seed", range(4))
def test_tree_matches_single_aggregation_despite_task_failures(
    world: World, far_apart: list[str], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    job_id = world.delivered_job(far_apart)
    expected = in_one_place(world, job_id)
    dice, note, apply = random.Random(seed), tree._store_result, aggregation._apply
    deaths = []

    def mortal(step: Callable[..., None]) -> Callable[..., None]:
        def live_or_die(*arguments: Any, **given: Any) -> None:
            if dice.random() < 0.5:
                deaths.append(step.__name__)
                raise Killed
            step(*arguments, **given)

        return live_or_die

    monkeypatch.setattr(tree, "_store_result", mortal(note))
    monkeypatch.setattr(aggregation, "_apply", mortal(apply))
    while world.read(job_id).current_round == 0:
        waiting = [("jobs.aggregate", (job_id,)), *world.wakes.seen]  # the first is what the sweep sends
        world.wakes.seen.clear()
        dice.shuffle(waiting)
        for task in waiting:
            for _ in range(dice.choice([0, 1, 2])):  # lost, done, done twice
                with suppress(Killed):
                    work(world, task)
    assert world.checkpoint(job_id) == expected
    assert leaves_of(world, job_id) == []  # finished tasks leave nothing behind
    assert "_store_result" in deaths


def test_leaves_follow_regions_and_record_names_all_payloads(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    assert [[part["slot"] for part in leaf.parts] for leaf in leaves_of(world, job_id)] == [[0, 2], [1, 4], [3], [5]]
    while world.read(job_id).current_round == 0:
        waiting, world.wakes.seen = world.wakes.seen, []
        assert waiting, "somebody must be woken until the round is closed"
        for task in waiting:
            work(world, task)
    manifest = CheckpointManifest.from_bytes(world.storage.get(world.checkpoint(job_id), max_bytes=2**20))
    assert manifest.aggregation is not None
    record = world.storage.get(manifest.aggregation, max_bytes=2**20).decode()
    assert all(str(unit.payload_cid) in record for unit in world.units(job_id, round=0))


def test_concurrent_and_repeated_leaves_act_once(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    expected = in_one_place(world, job_id)
    world.aggregate(job_id)
    for _ in range(5):
        calls = [("jobs.aggregate_leaf", (job_id, "0", str(leaf))) for leaf in range(4)] * 2
        assert at_once([lambda task=task: work(world, task) for task in calls]) == [None] * 8  # type: ignore[misc]
    world.aggregate(job_id)
    assert world.checkpoint(job_id) == expected


def test_unit_rejected_during_aggregation_replans_tree(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, 0)
    stale = leaves_of(world, job_id)[0].seed
    [bad] = world.units(job_id, round=0, slot=2)
    world.call(units.reject_unit, bad.id, "incorrect_computation")
    expected = in_one_place(world, job_id)
    while world.read(job_id).current_round == 0:
        world.aggregate(job_id)
        assert all(leaf.seed != stale for leaf in leaves_of(world, job_id))
        work_leaves(world, job_id)
    assert world.checkpoint(job_id) == expected
    assert world.units(job_id, round=0, slot=2)[0].included is None


def test_sums_of_abandoned_plan_are_not_kept(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    work_leaves(world, job_id)
    sums = [leaf.sum_cid for leaf in leaves_of(world, job_id) if leaf.sum_cid is not None]
    assert sums
    assert all(world.storage.is_pinned(cid) for cid in sums)
    [bad] = world.units(job_id, round=0, slot=5)
    world.call(units.reject_unit, bad.id, "incorrect_computation")
    while world.read(job_id).current_round == 0:
        world.aggregate(job_id)
        for leaf in leaves_of(world, job_id):
            tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, leaf.leaf)
            sums += [now.sum_cid for now in leaves_of(world, job_id) if now.sum_cid is not None]
    assert not any(world.storage.is_pinned(cid) for cid in sums)


def test_sum_is_not_kept_for_ended_job(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    work_leaves(world, job_id)
    late, *others = [leaf for leaf in leaves_of(world, job_id) if leaf.sum_cid is None]
    for leaf in others:
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, leaf.leaf)
    sums = [leaf.sum_cid for leaf in leaves_of(world, job_id) if leaf.sum_cid is not None]
    put = world.storage.put

    def end_meanwhile(data: Any, **options: Any) -> Any:
        payer = Principal(world.read(job_id).payer, frozenset(), 1, "session")
        world.call(amendments.cancel, payer, job_id)
        world.aggregate(job_id)
        stored = put(data, **options)
        sums.append(stored.cid)
        return stored

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.storage, "put", end_meanwhile)
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, late.leaf)
    assert len(sums) > 1
    assert not any(world.storage.is_pinned(cid) for cid in sums)
    assert not leaves_of(world, job_id)


def test_unreleased_sums_are_released_later(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    for _ in range(2):
        work_leaves(world, job_id)
    sums = [leaf.sum_cid or "" for leaf in leaves_of(world, job_id)]
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(world.storage, "unpin", raising(Killed))
        world.aggregate(job_id)
    assert world.read(job_id).current_round == 1
    assert all(world.storage.is_pinned(cid) for cid in sums)
    world.aggregate(job_id)
    assert not any(world.storage.is_pinned(cid) for cid in sums)
    assert not leaves_of(world, job_id)


def test_summaries_of_earlier_release_are_made_again(world: World, far_apart: list[str]) -> None:
    job_id = world.delivered_job(far_apart)
    expected = in_one_place(world, job_id)
    world.aggregate(job_id)
    work_leaves(world, job_id)
    for leaf in leaves_of(world, job_id):
        measured = {slot: values[:5] for slot, values in (leaf.summary or {})["measurements"].items()}
        world.change(AggregationLeaf, (job_id, 0, leaf.leaf), summary={"measurements": measured, "refused": {}})
    work_leaves(world, job_id)
    sums = [leaf.sum_cid for leaf in leaves_of(world, job_id) if leaf.sum_cid is not None]
    assert sums  # the earlier release had begun
    for _ in range(3):
        world.aggregate(job_id)
        work_leaves(world, job_id)
    assert world.checkpoint(job_id) == expected
    assert not any(world.storage.is_pinned(cid) for cid in sums)


def test_slow_leaf_writes_nothing_into_new_plan(
    world: World, far_apart: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = world.delivered_job(far_apart)
    world.aggregate(job_id)
    [bad] = world.units(job_id, round=0, slot=5)
    original = aggregate_tree.summarise

    def plan_anew_meanwhile(*arguments: Any) -> Any:
        monkeypatch.setattr(tree, "summarise", original)
        world.call(units.reject_unit, bad.id, "incorrect_computation")
        world.aggregate(job_id)
        return original(*arguments)

    monkeypatch.setattr(tree, "summarise", plan_anew_meanwhile)
    noted = []
    store = tree._store_result
    monkeypatch.setattr(tree, "_store_result", lambda *given, **new: noted.append(store(*given, **new)) or noted[-1])
    with monkeypatch.context() as patch:
        due = tree._due
        patch.setattr(tree, "_due", lambda *given: None if noted else due(*given))  # one step, and no more
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, 0)
    assert noted == [False]
    assert all(leaf.summary is None for leaf in leaves_of(world, job_id))


def test_small_job_and_single_region_need_no_tree(world: World) -> None:
    near = [world.node() for _ in range(4)]
    far = world.settings
    job_id = world.delivered_job(near)
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 1  # by its size
    for node in near:
        world.dispatch(job_id)
        world.deliver(node)
    world.settings = far.model_copy(update={"tree_aggregation_min_values": 0})
    world.aggregate(job_id)
    assert world.read(job_id).current_round == 2  # all in the region of those that were never measured


PATIENCE_SECONDS = 4 * DEADLINE_SECONDS  # sums are synced to a disk that other tests fill with gigabytes


class Crew:
    """A Celery worker of four threads on its own broker; the test sends the sweep."""

    def __init__(self, world: World) -> None:
        address = world.settings.redis_url.rstrip("/").removesuffix("/0")
        self._settings = world.settings.model_copy(update={"redis_url": f"{address}/7"})
        self._broker = Redis.from_url(self._settings.redis_url)
        self._app = create_app(self._settings, tasks=())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        given = self._settings.model_dump(include=NEEDED)
        environment = {f"ZOO_{name.upper()}": str(value) for name, value in given.items()}
        environment |= {"ZOO_OPERATOR_KEY": "0x" + "11" * 32, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "celery", "--app=worker.main", "worker", "--pool=threads", "--concurrency=4"]
        command += ["--without-gossip", "--without-mingle", "--loglevel=WARNING"]
        self._process = subprocess.Popen(command, cwd=ROOT, env=os.environ | environment)
        watch(self._process.pid)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_SECONDS)
        self._broker.flushdb()

    def wait(self, until: Callable[[], bool], pause: float = 0.05) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while not until():
            assert self._process is not None
            assert self._process.poll() is None
            assert time.monotonic() < limit
            delay(pause)

    def send(self, task: str, *arguments: str) -> None:
        self._app.send_task(task, args=arguments)

    def close_round(self, world: World, job_id: str) -> None:
        def is_over() -> bool:
            self.send("jobs.aggregate", job_id)
            return bool(world.read(job_id).current_round)

        self.wait(is_over, pause=0.5)


@pytest.fixture
def crew(world: World, far_apart: list[str]) -> Iterator[Crew]:
    crew = Crew(world)
    crew.kill()
    yield crew
    crew.kill()


@contextmanager
def _killed_at_the_lock(world: World, job_id: str, crew: Crew, waiting: int) -> Iterator[None]:
    """Process the messages until ``count`` tasks are about to write, then kill their process."""
    stuck = text("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
    with world.database.transaction() as session:
        jobs_repository.lock_job(session, job_id)
        crew.start()
        yield
        crew.wait(lambda: session.execute(stuck).scalar_one() >= waiting)
        crew.kill()


@pytest.mark.long
def test_killed_workers_leave_round_to_others_bit_exactly(world: World, far_apart: list[str], crew: Crew) -> None:
    job_id = world.delivered_job(far_apart)
    expected = in_one_place(world, job_id)
    world.aggregate(job_id)
    leaves = [str(leaf.leaf) for leaf in leaves_of(world, job_id)]

    def send_leaves() -> None:
        for leaf in leaves:
            crew.send("jobs.aggregate_leaf", job_id, "0", leaf)

    with _killed_at_the_lock(world, job_id, crew, waiting=4):
        send_leaves()
    assert [leaf.summary for leaf in leaves_of(world, job_id)] == [None] * 4
    for leaf in leaves:  # the last of them finds all summaries, and sums
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, int(leaf))
    with _killed_at_the_lock(world, job_id, crew, waiting=3):
        send_leaves()
    assert [leaf.sum_cid is None for leaf in leaves_of(world, job_id)] == [True, True, True, False]
    for leaf in leaves:
        tree.work_leaf(world.database, world.settings, world.storage, job_id, 0, int(leaf))
    with _killed_at_the_lock(world, job_id, crew, waiting=1):
        crew.send("jobs.aggregate", job_id)
    assert world.read(job_id).current_round == 0
    crew.start()
    crew.close_round(world, job_id)
    assert world.checkpoint(job_id) == expected


@pytest.mark.long
def test_workers_plan_sum_and_close_round(world: World, far_apart: list[str], crew: Crew) -> None:
    job_id = world.delivered_job(far_apart)
    expected = in_one_place(world, job_id)
    crew.start()
    crew.close_round(world, job_id)
    assert world.checkpoint(job_id) == expected
    assert "jobs.aggregate_leaf" not in world.wakes.names()  # nothing of it was done here
