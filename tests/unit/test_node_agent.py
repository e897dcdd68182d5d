"""What a node says of itself while its threads work side by side."""

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account

from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.market import Lease
from zoo_compute.wallet import Wallet
from zoo_protocol.hashing import to_hex


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeAgent:
    monkeypatch.setattr("zoo_compute.node.agent.HeldLease", lambda _market, lease: nullcontext(lease))
    config = NodeConfig("http://127.0.0.1:1", "provider", tmp_path, "node", profile="cpu-avx2-1")
    wallet = Wallet(to_hex(bytes(Account.create().key)))
    return NodeAgent(config, wallet, lambda *_: SimpleNamespace(close=lambda: None))  # type: ignore[arg-type,return-value]


class Gates:
    """Work that begins and ends when the test says so."""

    def __init__(self, *kinds: str) -> None:
        self.begun = {kind: threading.Event() for kind in kinds}
        self.may_end = {kind: threading.Event() for kind in kinds}

    def do(self, lease: Lease) -> None:
        self.begun[lease.kind].set()
        assert self.may_end[lease.kind].wait(60)
        if lease.kind == "pin":
            raise OSError("no space left")  # given up: the thread goes on to its next lease


def lease(kind: str) -> Lease:
    return Lease(kind, kind, "0x" + "00" * 32, "0x" + "11" * 32, {}, 30.0)


def test_a_node_is_busy_until_the_last_of_its_threads_is_done(
    agent: NodeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_give_up", lambda *_: None)
    gates: Any = Gates("train", "pin")
    threads = {kind: threading.Thread(target=agent._do, args=(gates, lease(kind))) for kind in gates.begun}
    assert not agent.is_busy
    for kind, thread in threads.items():
        thread.start()
        assert gates.begun[kind].wait(60)
    assert agent.is_busy
    gates.may_end["pin"].set()
    threads["pin"].join(60)
    assert agent.is_busy  # it still trains
    gates.may_end["train"].set()
    threads["train"].join(60)
    assert not agent.is_busy


def test_a_defect_in_one_thread_leaves_no_node_busy_for_ever(agent: NodeAgent) -> None:
    def defect(_: Lease) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        agent._do(SimpleNamespace(do=defect), lease("train"))  # type: ignore[arg-type]
    assert not agent.is_busy


def test_a_node_beats_while_it_waits_for_an_attestation(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's service may let it wait for minutes, each of which would be one of downtime."""
    asked, answered, beats = threading.Event(), threading.Event(), threading.Semaphore(0)

    def keep(_: object) -> None:
        asked.set()
        answered.wait(60)

    def beat(*_: object) -> float:
        beats.release()
        return 0.01

    standing = SimpleNamespace(network=None, close=lambda: None)
    idle = SimpleNamespace(watch=lambda: None, keep_seconds=None)
    monkeypatch.setattr("zoo_compute.node.agent.Attesting.keep", keep)
    monkeypatch.setattr("zoo_compute.node.agent.Payouts", lambda *_: None)
    monkeypatch.setattr("zoo_compute.node.agent.Omissions", lambda *_: None)
    agent._config = replace(agent._config, attest=True)
    agent._executor = SimpleNamespace(start=lambda: None, close=lambda: None)  # type: ignore[assignment]
    for name, result in (("_join", standing), ("_start_work", []), ("_omission_chain", None), ("_disputes", idle)):
        monkeypatch.setattr(agent, name, lambda *_, result=result: result)
    monkeypatch.setattr(agent, "_start_court", lambda _: SimpleNamespace(join=lambda: None))
    monkeypatch.setattr(agent, "_keep_standing", beat)
    running = threading.Thread(target=agent.run)
    running.start()
    try:
        assert asked.wait(60)
        assert all(beats.acquire(timeout=5) for _ in range(3))
        assert not answered.is_set()
    finally:
        agent.stop()
        answered.set()
        running.join(60)
    assert not running.is_alive()
