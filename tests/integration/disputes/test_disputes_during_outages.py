"""A running node answers disputes without the market, or with a full disk."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.chain.deployed_chain import wallet
from kit.disputes.dispute_fixtures import Delivered, DisputeWorld, honest_node, unit_of_the_node  # noqa: F401  (fixtures)
from kit.engines.disks import fill_disk
from kit.errors import raising
from kit.verification.live_fixtures import LiveMaker, Node
from kit.waiting import wait_until
from redis import Redis

from zoo_compute.base.errors import Unreachable
from zoo_compute.chain.disputes import DisputePhase, Opened
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.workspace import MIN_FREE_BYTES
from zoo_compute.node.market.calls import Market

pytestmark = pytest.mark.long

FIRST = wallet(8)


@pytest.fixture
def live(live_of: LiveMaker, redis_url: str) -> DisputeWorld:
    Redis.from_url(redis_url).flushdb()  # in which the node of the test before has this wallet
    world: DisputeWorld = live_of(DisputeWorld)
    return world


@pytest.mark.parametrize("is_away", [False, True])
def test_running_node_watches_disputes_during_outage(
    live: DisputeWorld, node: Node, unit: Delivered, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    if is_away:  # since it joined
        join, away = Market.poll, raising(Unreachable("market-unreachable", "no answer"))

        def poll(market: Market, sign: Any, kinds: Any = (), wait_seconds: float = 0.0) -> Any:
            return away() if kinds or wait_seconds else join(market, sign, kinds, wait_seconds)

        monkeypatch.setattr(Market, "poll", poll)
    opened = live.dispute(FIRST, unit)
    with running(live, node, live.api_url):
        await_answer(live, opened)


def test_node_started_during_outage_answers_disputes(live: DisputeWorld, node: Node, unit: Delivered) -> None:
    network = live.directory / node.address / "network.json"
    network.unlink(missing_ok=True)  # of another test's contracts
    with running(live, node, live.api_url):
        wait_until(network.exists)
    opened = live.dispute(FIRST, unit)
    assert live.state(opened).phase is DisputePhase.TRACE
    with running(live, node, "http://127.0.0.1:1"):
        await_answer(live, opened)


def test_node_started_on_full_disk_answers_disputes(
    live: DisputeWorld, node: Node, unit: Delivered, tiny_disk: Path
) -> None:
    """SQLite reports a full disk otherwise than the file system does."""
    shutil.copytree(live.directory / node.address, tiny_disk, dirs_exist_ok=True)
    with running(live, node, live.api_url, tiny_disk):
        wait_until((tiny_disk / "network.json").exists)
    opened = live.dispute(FIRST, unit)
    states = tiny_disk / "units" / unit.unit.jobId / "99-0"
    states.mkdir()
    (states / "state").write_bytes(bytes(MIN_FREE_BYTES + (8 << 20)))
    fill_disk(tiny_disk / "full")
    with running(live, node, live.api_url, tiny_disk) as agent:
        await_answer(live, opened)
        assert agent._last_status == ("", ""), "it takes no work"
        os.utime(states, (0, 0))  # and once something is old enough to go, there is room for work
        wait_until(lambda: agent._last_status != ("", ""))
        assert not states.exists()


@contextmanager
def running(live: DisputeWorld, node: Node, api_url: str, directory: Path | None = None) -> Iterator[NodeAgent]:
    idle = SimpleNamespace(
        environment_class=node.executor.environment_class,
        last_class="",
        start=lambda: None,
        close=lambda: None,
        usable_processes=1,
        network_removed=True,
    )
    directory = directory or live.directory / node.address
    config = NodeConfig(api_url, "provider", directory, "node", profile="cpu-fp32")
    agent = NodeAgent(config, node.worker.wallet, lambda *_: idle)  # type: ignore[arg-type,return-value]
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join()


def await_answer(live: DisputeWorld, opened: Opened) -> None:
    wait_until(lambda: live.state(opened).phase is not DisputePhase.TRACE)
    assert live.state(opened).phase is DisputePhase.STEP
