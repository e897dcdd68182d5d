"""A node with damaged files starts, names the quarantined ones, and goes on with the rest."""

import gc
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from kit.engines.disks import fill_disk
from kit.nodes.lone_nodes import (
    KEY,
    Standing,
    agent_of,
    config_of,
    poll_without_work,
    running,
    trained,
    training_worker,
)

from training_gym.units.trace import state_path
from zoo_compute.base.errors import Unreachable
from zoo_compute.chain.disputes import Opened
from zoo_compute.chain.wallet import Wallet
from zoo_compute.content.blockstore import BlockStore
from zoo_compute.node.agent import NodeAgent
from zoo_compute.node.background_services import NodeComponents, Payouts
from zoo_compute.node.disk.files import is_disk_full, lock_state_directory, quarantine, write_json
from zoo_compute.node.disk.traces import Trace, Traces
from zoo_compute.node.disk.workspace import MIN_FREE_BYTES, Workspace
from zoo_compute.node.disputes.referee import SignedVerdict, Verdicts
from zoo_compute.node.market.calls import Lease
from zoo_compute.node.work.acknowledgements import Journal, StoredAcknowledgement
from zoo_compute.node.work.states import StateUnavailable, state_file
from zoo_protocol.messages import UnitCommitment

JOB = "0x" + "01" * 32
UNIT = UnitCommitment(JOB, 1, 0, Account.from_key(KEY).address, "0x" + "02" * 32, "0x" + "03" * 32)
LONG_AGO = time.time() - 30 * 86_400


def cut(to: Callable[[int], int]) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, max(0, to(path.stat().st_size)))


def garbage(path: Path) -> None:
    path.write_bytes(hashlib.shake_256(path.name.encode()).digest(max(64, path.stat().st_size)))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


DAMAGES = {
    "empty": cut(lambda _: 0),
    "half": cut(lambda size: size // 2),
    "minus one byte": cut(lambda size: size - 1),
    "garbage": garbage,
    "another document": lambda path: path.write_text("[]"),
    "a folder": folder,
}
"""Each by what it does to a file."""


def fill(root: Path) -> None:
    with lock_state_directory(root):
        space = Workspace(root)
    cid = str(space.store.add(b"a checkpoint" * 100_000))
    space.keep(cid, [cid], JOB)
    space.store_lease(Lease("1", "pin", JOB, "0x" + "11" * 32, {"round": 1}, 30.0))
    Journal(space.acknowledgements).keep(StoredAcknowledgement(UNIT, 2_000_000_000, "0x" + "44" * 65))
    Traces(space.traces).keep(Trace(UNIT, "0x" + "05" * 32, ["0x" + "06" * 32]))
    space.disputes.mkdir(exist_ok=True)
    opened = Opened("0x" + "07" * 32, "0x" + "08" * 32, UNIT.provider, 4, 5)
    write_json(space.disputes / f"{opened.dispute_id}.json", {name: getattr(opened, name) for name in opened.__slots__})
    Verdicts(space.verdicts).keep(SignedVerdict("0x" + "09" * 32, 0, True, "step_correct", "0x2"))
    unit = space.unit(JOB, 1, 0)
    for name in ("payload.bin", "state-1.safetensors"):
        (unit / name).write_bytes(name.encode())
    write_json(unit / "result.json", {"start": []})
    for number in range(2):
        state = unit / "slot-state.safetensors"
        state.write_bytes(b"%d" % number * 100)
        kept = space.slot_state(JOB, 0, space.keep_slot_state(JOB, 0, state))
        os.utime(kept, (LONG_AGO + number, LONG_AGO + number))
    copied = root.with_name("copied")  # as it lies there now, with the database's journal
    shutil.copytree(root, copied)
    shutil.rmtree(root)
    copied.rename(root)


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("node") / "state"
    fill(root)
    return root


@pytest.fixture
def root(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "state"))


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[str]]:
    def away(*_: object) -> None:
        raise Unreachable("chain-unreachable", "no answer")

    done: list[str] = []
    monkeypatch.setattr(Payouts, "collect", lambda _: None)
    monkeypatch.setattr(NodeAgent, "_process_lease", lambda _self, _worker, lease: done.append(lease.kind))
    monkeypatch.setattr(NodeAgent, "_poll", poll_without_work)
    monkeypatch.setattr(NodeComponents, "omission_chain", lambda *_: away)
    monkeypatch.setattr(NodeComponents, "gateway", lambda *_: None)
    monkeypatch.setattr("zoo_compute.node.background_services.DisputeChain", away)

    def start(root: Path) -> list[str]:
        standing = Standing()
        monkeypatch.setattr(NodeAgent, "_join", lambda _: standing)
        with lock_state_directory(root):
            agent = agent_of(root)
            with running(agent):
                assert standing.heard.acquire(timeout=60)
                agent._journal.all()
                assert agent._services.disputes is not None
                agent._services.disputes.open_disputes()
                agent._workspace.tidy(48)
                agent._workspace.release(["bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"])
                agent._workspace.collect()
            assert agent._failure is None
        return done

    return start


def test_damaged_directory_fixture_has_every_file_kind(filled: Path) -> None:
    folders = {name.split("/")[0] for name in files_of(filled)}
    assert folders >= {"acknowledgements", "checkpoints", "disputes", "leases", "lock", "slots", "store", "traces"}
    assert folders >= {"units", "verdicts"}
    assert {"store/index.sqlite", "store/index.sqlite-wal", "store/index.lock"} <= set(files_of(filled))


@pytest.mark.parametrize("damage", DAMAGES)
def test_node_starts_with_any_damaged_file(
    filled: Path, tmp_path: Path, lives: Callable[[Path], list[str]], damage: str
) -> None:
    for number, name in enumerate(files_of(filled)):
        root = Path(shutil.copytree(filled, tmp_path / str(number)))
        DAMAGES[damage](root / name)
        lives(root)


def test_intact_directory_has_no_quarantine(root: Path, lives: Callable[[Path], list[str]]) -> None:
    assert lives(root) == ["pin"]
    assert not list(root.rglob("*.damaged-*"))
    store = BlockStore(root / "store")
    assert len(store.pins()) == 1


@pytest.mark.parametrize("name", ["leases", "acknowledgements", "checkpoints"])
def test_quarantined_files_are_reported_and_kept(
    root: Path, lives: Callable[[Path], list[str]], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    [path] = (root / name).glob("*.json")
    path.write_bytes(b'{"half of')
    lives(root)
    [aside] = (root / name).iterdir()
    assert (aside.name.startswith(f"{path.name}.damaged-20"), aside.read_bytes()) == (True, b'{"half of')
    assert f"file_quarantined path={path} " in caplog.text


def test_concurrently_quarantined_file_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_text("half of")
    for _ in range(2):
        quarantine(path, "it is cut")
    [aside] = tmp_path.iterdir()
    assert aside.read_text() == "half of"


@pytest.mark.parametrize(
    "name",
    ["units", "slots", "leases", "store", "checkpoints", "acknowledgements", "traces", "disputes", "verdicts", "files"],
)
def test_file_replacing_folder_is_quarantined(root: Path, lives: Callable[[Path], list[str]], name: str) -> None:
    shutil.rmtree(root / name)
    (root / name).write_text("a file")
    lives(root)
    assert (root / name).is_dir()
    assert [path.read_text() for path in root.glob(f"{name}.damaged-*")] == ["a file"]


@pytest.mark.parametrize("missing", [True, False])
def test_missing_index_keeps_packs(root: Path, lives: Callable[[Path], list[str]], missing: bool) -> None:
    for path in (root / "store").glob("index.sqlite*"):
        path.unlink()
    if not missing:
        (root / "store" / "index.sqlite").touch()
    lives(root)
    [aside] = root.glob("store.damaged-*")
    assert sum(path.stat().st_size for path in (aside / "packs").iterdir()) > 900_000


def test_full_disk_is_not_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: BlockStore) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(BlockStore, "check", full)
    with pytest.raises(sqlite3.OperationalError):
        Workspace(root).open_store()
    assert not list(root.glob("*.damaged-*"))


def test_unopenable_store_reports_lack_of_space(tiny_disk: Path) -> None:
    """SQLite has its own error for it, and needs room for its journal."""
    Workspace(tiny_disk).open_store()
    gc.collect()
    fill_disk(tiny_disk / "full")
    space = Workspace(tiny_disk)
    with pytest.raises(sqlite3.OperationalError) as error:
        _ = space.store
    assert is_disk_full(error.value)
    assert not is_disk_full(PermissionError(13, "Permission denied"))
    (tiny_disk / "full").unlink()
    (tiny_disk / "most").write_bytes(bytes(2 * MIN_FREE_BYTES + (1 << 20)))
    with pytest.raises(OSError, match="less than 32 MiB") as little:
        space.open_store()
    assert is_disk_full(little.value)
    (tiny_disk / "most").unlink()
    space.open_store()


def test_node_waiting_for_space_stops_on_request(tiny_disk: Path) -> None:
    Workspace(tiny_disk)
    fill_disk(tiny_disk / "full")
    agent = NodeAgent(config_of(tiny_disk), Wallet(KEY))
    with running(agent):
        pass
    assert agent._failure is None


def test_too_many_open_files_are_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Workspace(root)

    def refuse(_: Path) -> bytes:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(OSError, match="Too many"):
            space.stored_leases()
    assert [lease.kind for lease in space.stored_leases()] == ["pin"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_replica_state_is_not_used(root: Path, damage: str) -> None:
    space = Workspace(root)
    path = next((root / "slots").glob("*/*/*"))
    assert space.kept_slot_state(JOB, 0, path.name) == path
    DAMAGES[damage](path)
    assert space.kept_slot_state(JOB, 0, path.name) is None
    assert space.kept_slot_state(JOB, 0, path.name) is None  # and is not here any more
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("result.json", damage) for damage in DAMAGES),
        *(("payload", damage) for damage in DAMAGES if "folder" not in damage),
    ],
)
def test_unit_with_damaged_result_is_retrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    worker, unit = training_worker(tmp_path, monkeypatch), Workspace(tmp_path).unit(JOB, 1, 0)
    for _ in range(2):
        trained(worker, JOB)
    assert worker.executor.runs == 1
    DAMAGES[damage](unit / name)
    result = trained(worker, JOB)
    assert worker.executor.runs == 2
    assert Path(result["payload"]).read_bytes() == b"payload"
    assert json.loads((unit / "result.json").read_text()) == result


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_old_result_confirms_no_state(root: Path, damage: str) -> None:
    """A trace of an earlier version lacks the start; only the result names its states."""
    space, trace = Workspace(root), Trace(UNIT, "0x" + "05" * 32, ["0x" + "06" * 32])
    unit = space.unit(JOB, 1, 0)
    write_json(unit / "result.json", {"state_digests": trace.states})
    nothing: Any = None  # is asked for nothing
    assert state_file(trace, 1, space, nothing, nothing) == state_path(unit, 1)
    DAMAGES[damage](unit / "result.json")
    with pytest.raises(StateUnavailable):
        state_file(trace, 1, space, nothing, nothing)
    assert len(list(unit.glob("result.json.damaged-*"))) == 1


def test_folder_in_place_of_lock_is_quarantined(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with lock_state_directory(tmp_path):
        assert (tmp_path / "lock").is_file()
