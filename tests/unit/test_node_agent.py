"""What a node says of itself while its threads work side by side."""

import threading
from contextlib import nullcontext
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
