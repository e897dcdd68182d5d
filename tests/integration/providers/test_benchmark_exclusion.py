"""A node benchmarks or works for a job, never both: one would delay the other."""

from datetime import UTC, datetime

import httpx
import pytest
from kit.api.clients import Caller, refusal, sign_in
from kit.api.provider_calls import HARDWARE, answer_benchmark, beat, commit_benchmark, pass_benchmark, start_benchmark
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World
from kit.payments.cancelled_jobs import cancel_now
from sqlalchemy import select

from market.jobs.models import Slot
from market.platform.http.services import Services
from market.providers import service as providers
from market.providers.models import BenchmarkRun, Provider
from market.training.leases import service as leases
from market.training.leases.schemas import LeaseKind
from market.training.matching import book

PRICE = 5 * ZEN // 2


@pytest.fixture
def caller(api: httpx.Client, world: World) -> Caller:
    caller = sign_in(api)
    world.register(caller.address)
    world.wallets[caller.address] = caller.wallet
    world.change(Provider, caller.address, hardware=HARDWARE)
    return caller


def _draw(world: World, node: str) -> None:
    world.change(Provider, node, rebenchmark_at=datetime.now(UTC))


def _offers(world: World) -> set[str]:
    return {offer.provider for offer in world.call(providers.open_offers, world.settings, 1, datetime.now(UTC))}


def _is_placed(world: World, node: str) -> bool:
    job_id = world.job(nodes=1)
    return world.call(book.assign, world.settings, job_id, PRICE, None, [node], ENVIRONMENT)  # type: ignore[arg-type]


def test_node_due_for_benchmark_gets_no_work(services: Services, world: World, caller: Caller) -> None:
    assert _offers(world) == {caller.address}
    _draw(world, caller.address)
    assert beat(caller, services.domain)["benchmark_by"] is not None
    assert _offers(world) == set()
    assert not _is_placed(world, caller.address)  # even though it was sold a moment before
    other = world.node()
    job_id = world.running([other], rounds=6)
    world.call(leases.remove_node_from_jobs, other, "a test")
    world.change(Provider, other, last_seen_at=None)
    world.dispatch(job_id)
    holders = select(Slot.provider).where(Slot.job_id == job_id)
    assert world.all(holders) == [None]
    assert world.pull(caller.address, LeaseKind.FOLLOW) is None
    pass_benchmark(caller)
    world.dispatch(job_id)
    assert world.all(holders) == [caller.address]


def test_node_is_not_placed_during_benchmark(world: World, caller: Caller) -> None:
    run = start_benchmark(caller)
    assert _offers(world) == set()
    assert not _is_placed(world, caller.address)
    right = commit_benchmark(caller, run)
    assert _offers(world) == set()
    assert answer_benchmark(caller, run, right).json()["passed"]
    assert _offers(world) == {caller.address}


@pytest.mark.parametrize("step", ["ready", "work"])
def test_abandoned_benchmark_blocks_work_only_until_deadline(world: World, caller: Caller, step: str) -> None:
    run = start_benchmark(caller)
    if step == "work":
        caller.post(f"/v1/benchmarks/{run['id']}/ready", json={})
    assert _offers(world) == set()
    world.change(BenchmarkRun, run["id"], deadline_at=datetime.now(UTC))
    assert _is_placed(world, caller.address)


def test_node_in_job_is_not_benchmarked(services: Services, world: World, caller: Caller) -> None:
    job_id = world.running([caller.address])
    _draw(world, caller.address)
    assert beat(caller, services.domain)["benchmark_by"] is None
    answer = caller.post("/v1/benchmarks", json={"tier": "bronze"})
    assert "job" in refusal(answer, 409, "benchmark-at-work")["remedy"]
    world.deliver(caller.address)
    assert beat(caller, services.domain)["benchmark_by"] is None  # between two units
    cancel_now(world, job_id)
    assert beat(caller, services.domain)["benchmark_by"] is not None
    start_benchmark(caller)
