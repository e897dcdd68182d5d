"""Nodes and a network without market and chain, with fakes of standing and training."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.waiting import delay
from zoo_compute.base.link import Link
from zoo_compute.base.models import Network
from zoo_compute.chain.wallet import Wallet
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.config import NodeConfig
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.work import worker as work_worker
from zoo_compute.node.work.worker import UnitResourceUsage, Worker
from zoo_protocol.hashing import to_hex

KEY = "0x" + "11" * 32
NETWORK = Network(
    name="devnet",
    chain_id=1,
    rpc_url="http://127.0.0.1:1",
    gateway_url="http://127.0.0.1:1",
    contracts={"JobEscrow": "0x" + "e5" * 20, "Omissions": "0x" + "e6" * 20},
    fee_bps=500,
    sampling_floor_bps=200,
    challenge_seconds=60,
    verifier_minimum_stake_wei=1,
    tiers={},
)
SAID = {"status": "active", "reason": None, "benchmark_by": None, "next_within_seconds": 4, "verifiers_of_class": 2}
"""A node's state in the market's answer to a poll."""


def poll_without_work(*_: object) -> tuple[dict[str, Any], None]:
    """Stand in for a node's poll."""
    delay(0.02)
    return SAID, None


def config_of(directory: Path, url: str = "http://127.0.0.1:1") -> NodeConfig:
    return NodeConfig(url, "provider", directory, "node", profile="cpu-fp32")


def agent_of(directory: Path, url: str = "http://127.0.0.1:1") -> NodeAgent:
    """Build a node whose executor starts nothing."""
    idle = SimpleNamespace(start=lambda: None, close=lambda: None, last_class="", environment_class="class")
    idle.usable_processes, idle.network_removed = 1, True
    return NodeAgent(config_of(directory, url), Wallet(KEY), lambda *_: idle)  # type: ignore[arg-type,return-value]


@contextmanager
def running(agent: NodeAgent, *released: threading.Event) -> Iterator[None]:
    """Run the node until the end of the block, where it first sets these events."""
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield
    finally:
        for event in released:
            event.set()
        agent.stop()
        thread.join(60)
        assert not thread.is_alive()


class Standing:
    environment_class = "class"
    network = NETWORK

    def __init__(self, defect: Exception | None = None) -> None:
        self.heard = threading.Semaphore(0)
        self.defect = defect

    def log_verifier_count(self, _: int) -> None:
        self.heard.release()

    def sign_challenge(self, _: str) -> str:
        return "0x"

    def advance(self, *_: Any, **__: Any) -> None:
        if self.defect is not None:
            raise self.defect

    def close(self) -> None:
        pass


class Trains:
    """An executor that writes a unit's files at once."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self, task: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        self.runs += 1
        directory = Path(task["output"])
        for name in ("payload", "slot", "state-0", "state-1"):
            (directory / name).write_bytes(name.encode())
        return {
            "payload": str(directory / "payload"),
            "payload_sha256": to_hex(hashlib.sha256(b"payload").digest()),
            "slot_state": str(directory / "slot"),
            "states": [str(directory / f"state-{number}") for number in (0, 1)],
            "state_digests": [],
        }


def training_worker(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build a worker with :class:`Trains` that needs no inputs."""
    monkeypatch.setattr(work_worker, "unit_task", lambda *_: {})
    monkeypatch.setattr(work_worker, "require_link", lambda *_: None)
    monkeypatch.setattr(work_worker, "require_memory", lambda *_: None)
    names = ("market", "wallet", "domain", "gateway", "acknowledgements")
    return Worker(workspace=Workspace(directory), executor=Trains(), link=Link(), **dict.fromkeys(names))  # type: ignore[arg-type]


def trained(worker: Worker, job_id: str, environment: str = "class") -> dict[str, Any]:
    """Return the result of replica 0 in round 1."""
    cids = dict.fromkeys(("checkpoint_cid", "slot_state_cid", "restored_payload_cid", "eager_payload_cid"))
    spec = {"training_config": {"top_k": 64}}
    task = {"job_id": job_id, "round": 1, "slot": 0, "environment": environment, "spec": spec, **cids}
    held: Any = SimpleNamespace(lease=SimpleNamespace(task=task), progress=None, check=None)
    return worker._trained(held, UnitResourceUsage(Link()))
