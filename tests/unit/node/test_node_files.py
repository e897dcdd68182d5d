"""A node's files after a power cut, and its survival of disk failures."""

import math
import os
import socket
import stat
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.nodes.lone_nodes import agent_of, poll_without_work, trained, training_worker

from zoo_compute.base.errors import ZooError
from zoo_compute.base.link import Link
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node import attestation
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.referee import SignedVerdict, Verdicts
from zoo_compute.node.execution.tasks import TaskError
from zoo_compute.node.market.calls import Lease
from zoo_compute.node.work import worker as work_worker
from zoo_compute.node.work.worker import UnitResourceUsage
from zoo_protocol.content.cid import InvalidCid

JOB = "0x" + "22" * 32


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int, set[str]]]:
    """(is a folder, inode, names in it then) of each fsync."""
    found: list[tuple[bool, int, set[str]]] = []
    real = os.fsync

    def note(handle: int) -> None:
        what = os.fstat(handle)
        folder = stat.S_ISDIR(what.st_mode)
        found.append((folder, what.st_ino, set(os.listdir(handle)) if folder else set()))
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_verdict_is_saved_before_signature_leaves(tmp_path: Path, synced: Any) -> None:
    Verdicts(tmp_path / "verdicts").keep(SignedVerdict("0x1", 0, True, "step_correct", "0x2"))
    assert (True, (tmp_path / "verdicts").stat().st_ino, {"0x1-0.json"}) in synced


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return training_worker(tmp_path, monkeypatch)


def test_unit_files_are_synced_before_result_names_them(worker: Any, synced: Any) -> None:
    result = trained(worker, JOB)
    inodes = [inode for folder, inode, _ in synced if not folder]
    own = [Path(name).stat().st_ino for name in (result["payload"], *result["states"])]
    written = (Path(result["payload"]).parent / "result.json").stat().st_ino
    assert max(map(inodes.index, own)) < inodes.index(written)


def test_result_counts_only_for_its_environment_class(worker: Any) -> None:
    trained(worker, JOB)
    trained(worker, JOB)
    assert worker.executor.runs == 1
    trained(worker, JOB, "another")  # its leaves differ: under this lease they would be false
    assert worker.executor.runs == 2


@pytest.mark.parametrize("loss", [1e30, math.inf, math.nan])
def test_huge_training_loss_is_delivered_as_stated(
    worker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loss: float
) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(work_worker, "upload_file", lambda *_: "cid")
    market = SimpleNamespace(complete=lambda _lease, result, _size: sent.append(result))
    held: Any = SimpleNamespace(lease=None, call_until_answered=lambda call: call())
    (tmp_path / "payload").write_bytes(b"payload")
    names = ("payload_sha256", "slot_state_cid", "slot_state_digest", "leaves", "end_parameters_digest", "steps")
    result = dict.fromkeys(names, "any") | {"payload": str(tmp_path / "payload"), "evaluation": "", "seconds": 1.0}
    replace(worker, market=market)._deliver(held, result | {"train_loss": loss}, bytes(32), UnitResourceUsage(Link()))
    assert [one["train_loss"] for one in sent] == ["999999.000000"]


@pytest.fixture
def agent(tmp_path: Path) -> NodeAgent:
    return agent_of(tmp_path)


def test_disk_failure_does_not_end_heartbeats(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_poll", poll_without_work)
    idle = SimpleNamespace(advance=lambda *_, **__: None, log_verifier_count=lambda _: None)

    def refuse(*_: Any, **__: Any) -> None:
        Path("/dev/null/no").read_bytes()

    assert agent._advance(SimpleNamespace(advance=refuse, log_verifier_count=lambda _: None)) == 1.0  # type: ignore[arg-type]

    def vanished(*_: Any) -> None:
        raise FileNotFoundError("moved by another thread")

    monkeypatch.setattr(Workspace, "tidy", vanished)
    assert agent._advance(idle) == 0.0  # type: ignore[arg-type]


def test_disk_failure_costs_lease_but_not_node(agent: NodeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up: list[str] = []
    monkeypatch.setattr(agent._market, "keep_lease", lambda *_: None)
    monkeypatch.setattr(agent._market, "fail", lambda _lease, code, _detail: given_up.append(code))
    lease = Lease("l", "pin", "0x" + "00" * 32, "0x" + "11" * 32, {}, 30.0)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "store_lease", full)
        agent._process_lease(SimpleNamespace(do=lambda _: None), lease)  # type: ignore[arg-type]
    store = agent._workspace.store

    def pin(_: Any) -> None:  # a disk that has no room for the index of the blocks, by SQLite's own words
        store._index._db.execute("PRAGMA max_page_count=1")
        for number in range(1000):
            store.add(b"%d" % number)

    agent._process_lease(SimpleNamespace(do=pin), lease)  # type: ignore[arg-type]
    assert given_up == ["input_missing", "input_missing"]
    assert not agent._workspace.stored_leases()


def test_silent_collateral_source_does_not_delay_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attestation, "_COLLATERAL_SECONDS", 0.2)
    quote = (Path(__file__).parents[2] / "vectors" / "dcap" / "tdx_quote.bin").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fetch = attestation.collateral_from(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ZooError) as error:
            fetch(quote)
    assert (error.value.code, "no answer in time" in error.value.detail) == ("collateral-unavailable", True)


def test_foreign_names_stay_within_node_directory(tmp_path: Path) -> None:
    """A lease or record may hold any text where a CID belongs."""
    key = tmp_path / "key"
    key.write_text("secret")
    workspace, job_id = Workspace(tmp_path / "node"), "0x" + "11" * 32
    with GatewayClient(["http://127.0.0.1:1"], attempts=1) as gateway:
        for wrong in ("../../key", str(key), "", "."):
            with pytest.raises(InvalidCid):
                workspace.fetch(gateway, wrong)
            with pytest.raises(InvalidCid):
                workspace.kept_slot_state(job_id, 0, wrong)
            with pytest.raises(InvalidCid):
                workspace.keep(wrong, [], job_id)
    for place in (("../..", 0, 0), (job_id, "../..", 0), (job_id, 0, "../key")):
        with pytest.raises(TaskError):
            workspace.unit(*place)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="id is "):
        Lease.from_dict({**asdict(Lease("l", "pin", job_id, job_id, {}, 30.0)), "id": "../key"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "node"]
    assert key.read_text() == "secret"
