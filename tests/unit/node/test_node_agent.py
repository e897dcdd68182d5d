"""A node's reports while its threads run concurrently."""

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from kit.nodes.lone_nodes import KEY, NETWORK, SAID, Standing, agent_of, config_of, poll_without_work, running
from kit.waiting import wait_until

from training_gym.runtime.profile import CPU
from zoo_compute.base.errors import ApiError
from zoo_compute.base.models import Network
from zoo_compute.chain.wallet import Wallet
from zoo_compute.node import lifecycle as node_lifecycle
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.attestation import AttestationRenewal
from zoo_compute.node.background_services import BackgroundServices, Payouts
from zoo_compute.node.disk import workspace
from zoo_compute.node.disk.files import write_json
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.disputes.omissions import Omissions
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Lease
from zoo_protocol.content.cid import RAW, of_block


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeAgent:
    monkeypatch.setattr(
        "zoo_compute.node.agent.HeldLease", lambda _market, lease: nullcontext(SimpleNamespace(lease=lease))
    )
    return agent_of(tmp_path)


@pytest.fixture
def node(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> NodeAgent:
    """A node without work, pay and disputes."""
    monkeypatch.setattr(Payouts, "collect", lambda _: None)
    for duty in (Omissions, Disputes):
        monkeypatch.setattr(duty, "watch", lambda _: None)
    monkeypatch.setattr(agent, "_start_workers", lambda _: [])
    monkeypatch.setattr(agent, "_poll", poll_without_work)
    monkeypatch.setattr(BackgroundServices, "_duties_in_disputes", lambda *_: {})
    return agent


def test_idle_node_makes_two_requests_a_minute(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: dict[int, float] = defaultdict(float)  # by thread
    over, may_end = threading.Event(), threading.Event()
    requests: list[dict[str, Any]] = []

    def spend(seconds: float) -> None:
        spent[threading.get_ident()] += seconds
        if spent[threading.get_ident()] >= 120:
            over.set()
            may_end.wait(60)

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.read())
        if not body.get("wait_seconds"):  # the first poll
            wait_until(lambda: len(agent._idle) == 4, "all threads have started")
        if spent[threading.get_ident()] >= 60:
            requests.append(body)
        spend(body.get("wait_seconds", 0))
        said = SAID | {"counted": True, "challenge": "0x", "lease": None, "waited_ms": 0, "next_within_seconds": 45}
        return httpx.Response(200, json=said)

    market = httpx.Client(base_url="http://market", transport=httpx.MockTransport(answer))
    monkeypatch.setattr(agent._connection, "_polls", market)
    monkeypatch.setattr(agent._connection, "_http", market)
    monkeypatch.setattr(agent._stopping, "wait", spend)
    monkeypatch.setattr(BackgroundServices, "use_network", lambda *_: None)
    monkeypatch.setattr(agent, "_join", Standing)
    with running(agent, may_end):
        assert over.wait(60)
        assert len(requests) == 2
    assert sorted(requests[0]["kinds"]) == ["follow", "pin", "publish", "reveal", "train"]


def test_thread_freed_during_poll_polls_for_itself(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    main_polls, own_poll, may_end = (threading.Event() for _ in range(3))

    def poll(_: object, kinds: Sequence[str], seconds: float) -> tuple[dict[str, Any], Lease | None]:
        if "train" not in kinds and not seconds:
            return SAID | {"next_within_seconds": 45}, None  # the main thread's next poll has 30 seconds
        if threading.current_thread().name != "train" and "train" in kinds:
            said = SAID | {"next_within_seconds": 45}
            return said, Lease("l", "train", "0x" + "00" * 32, "0x" + "11" * 32, {}, 30.0)
        (own_poll if kinds == ("train",) and 0 < seconds < 30 else main_polls).set()
        may_end.wait(60)
        return SAID, None

    monkeypatch.setattr(agent, "_make_worker", lambda **_: SimpleNamespace(do=lambda _: main_polls.wait(60) and None))
    monkeypatch.setattr(agent, "_poll", poll)
    monkeypatch.setattr(BackgroundServices, "use_network", lambda *_: None)
    monkeypatch.setattr(agent, "_join", Standing)
    with running(agent, may_end):
        assert own_poll.wait(30)


def test_unmined_claim_does_not_delay_heartbeats(node: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    standing, may_end = Standing(), threading.Event()
    monkeypatch.setattr(node, "_join", lambda: standing)
    for slow in (Payouts, Omissions, Disputes):
        name = "collect" if slow is Payouts else "watch"
        monkeypatch.setattr(slow, name, lambda _: may_end.wait(60))
    with running(node, may_end):
        for _ in range(3):
            assert standing.heard.acquire(timeout=30)
        assert not may_end.is_set()


def test_node_checks_pay_before_joining(node: NodeAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    collected, over = threading.Event(), threading.Event()
    monkeypatch.setattr(node, "_join", lambda: over.wait(60) and None)
    monkeypatch.setattr(Payouts, "collect", lambda _: collected.set())
    write_json(tmp_path / "network.json", NETWORK.model_dump(mode="json"))
    with running(node, over):
        assert collected.wait(30)


def test_node_continues_with_newly_named_network(
    node: NodeAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = NETWORK.model_copy(update={"contracts": {**NETWORK.contracts, "JobEscrow": "0x" + "e7" * 20}})
    seen: set[str] = set()
    monkeypatch.setattr(Payouts, "collect", lambda payouts: seen.add(payouts.network.contracts["JobEscrow"]))
    try:
        for network in (NETWORK, other):
            node._services.use_network(network)
            wait_until(lambda escrow=network.contracts["JobEscrow"]: escrow in seen)
            written = Network.model_validate_json((tmp_path / "network.json").read_bytes())
            assert written == network
        assert len(node._services._threads) == 1
    finally:
        node.stop()
        node._services.join()


def test_old_blocks_are_dropped_and_pinned_ones_kept(
    node: NodeAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workspace, "_COLLECT_SECONDS", 0.0)
    monkeypatch.setattr(node, "_join", Standing)
    store = node._workspace.store
    node._workspace._collect_at = 0.0
    pinned, fetched = store.add(b"a checkpoint"), of_block(RAW, b"a state that was replayed once")
    store.put(fetched, b"a state that was replayed once")
    long_ago = time.time() - 90_000
    for pack in (tmp_path / "store" / "packs").iterdir():
        os.utime(pack, (long_ago, long_ago))
    with running(node):
        wait_until(lambda: not store.has(fetched), "it fills the disk")
    assert store.has(pinned)


def test_failing_heartbeat_thread_ends_node(node: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_join", lambda: Standing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        node.run()
    assert node._stopping.is_set()  # its other threads have ended with it


def test_node_status_does_not_wait_for_unit(tmp_path: Path) -> None:
    registered: list[Any] = []
    network = SimpleNamespace(tiers={"bronze": None}, name="devnet")

    def refuse(_: str) -> None:
        raise ApiError(409, "benchmark-paused", "one was failed lately")

    market: Any = SimpleNamespace(
        network=lambda: network,
        register=lambda info: registered.append([info["name"], info["hardware"]["processes"]]),
        start_benchmark=refuse,
    )
    config = config_of(tmp_path)
    with Executor(CPU, 1 << 30, tmp_path) as executor:
        standing = node_lifecycle.NodeLifecycle(config, market, Wallet(KEY), executor)
        standing.register("0x" + "cc" * 32)
        with busy(executor):

            def beat() -> None:
                for live in (0, 2, 1):
                    standing.log_verifier_count(live)
                standing.advance("demoted")  # the benchmark ends it, once the unit is done

            heartbeats = threading.Thread(target=beat, daemon=True)
            heartbeats.start()
            heartbeats.join(30)
            assert not heartbeats.is_alive(), "the heartbeats waited for the training task"
        standing.close()
    assert registered == [["node", 1]]


def test_node_with_insufficient_hardware_retries_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    clock = SimpleNamespace(now=0, monotonic=lambda: clock.now)

    def refuse(_: str) -> None:
        asked.append(clock.now)
        raise ApiError(422, "hardware-insufficient", "tier bronze needs more")

    network = SimpleNamespace(tiers={"bronze": None}, name="devnet")
    market: Any = SimpleNamespace(network=lambda: network, start_benchmark=refuse)
    config = config_of(tmp_path)
    monkeypatch.setattr(node_lifecycle, "time", clock)
    with Executor(CPU, 1 << 30, tmp_path) as executor:
        standing = node_lifecycle.NodeLifecycle(config, market, Wallet(KEY), executor)
        for clock.now in range(7200):  # each beat of two hours
            with suppress(ApiError):
                standing.advance("registered")
    assert asked[:8] == [0, 2, 6, 14, 30, 62, 126, 254]
    assert 15 < len(asked) < 30


def test_files_of_killed_benchmark_are_removed_on_restart(tmp_path: Path) -> None:
    left = workspace.Workspace(tmp_path).executor / "proof-x"
    left.mkdir()
    (left / "answer").write_bytes(b"800 MB")
    assert list(workspace.Workspace(tmp_path).executor.iterdir()) == []


@contextmanager
def busy(executor: Executor) -> Iterator[None]:
    begun, may_end = threading.Event(), threading.Event()

    def train() -> None:
        with executor.reserve():
            begun.set()
            may_end.wait(60)

    thread = threading.Thread(target=train)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        may_end.set()
        thread.join()


def test_node_sends_heartbeats_while_waiting_for_attestation(node: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's service may take minutes, each of which would be downtime."""
    standing, asked, answered = Standing(), threading.Event(), threading.Event()

    def keep(_: object) -> None:
        asked.set()
        answered.wait(60)

    monkeypatch.setattr(node, "_join", lambda: standing)
    monkeypatch.setattr(AttestationRenewal, "keep", keep)
    node._services = BackgroundServices(replace(node._parts, config=replace(node._config, attest=True)), node._fail)
    with running(node, answered):
        assert asked.wait(60)
        for _ in range(3):
            assert standing.heard.acquire(timeout=30)
        assert not answered.is_set()


def refused(*_: object) -> None:
    raise ApiError(409, "wallet-in-use", "another node was heard of")


def test_node_stops_when_other_node_has_its_wallet(node: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_join", Standing)
    monkeypatch.setattr(node, "_poll", refused)
    with pytest.raises(ApiError, match="wallet-in-use"):
        node.run()
    assert node._stopping.is_set()


def test_refused_node_keeps_registration_of_other_unchanged(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    standing = SimpleNamespace(register=registered.append, sign_challenge=None)
    monkeypatch.setattr("zoo_compute.node.agent.NodeLifecycle", lambda *_: standing)
    monkeypatch.setattr(agent._market, "poll", refused)
    with pytest.raises(ApiError, match="wallet-in-use"):
        agent.run()
    assert not registered


def test_node_names_previous_processes_of_directory(tmp_path: Path) -> None:
    sessions: list[str] = []
    for _ in range(20):
        session, before = workspace.Workspace(tmp_path).new_session()
        assert before == sessions[-8:]
        sessions.append(session)
    assert len(set(sessions)) == 20
    assert workspace.Workspace(tmp_path / "other").new_session()[1] == []
    (tmp_path / "sessions.json").write_bytes(b'{"ses')
    assert workspace.Workspace(tmp_path).new_session()[1] == []
