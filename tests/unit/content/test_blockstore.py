"""The block store after a power cut keeps all acknowledged pins; errors name damage on disk."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest
from kit.errors import raising
from starlette.testclient import TestClient

from zoo_compute.content import packs
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.packs import Index
from zoo_compute.devnet.ipfs_store import rpc
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import RAW, of_block

SEVERAL = b"".join(bytes([number]) * unixfs.CHUNK_BYTES for number in (1, 2, 2, 3)) + b"end"
LIMIT = 1 << 30


class Disk:
    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.forced: set[int] = set()
        self.before_pin: set[int] | None = None
        self.durable: list[bool] = []
        sync, data_sync, pin, transaction = os.fsync, os.fdatasync, Index.pin, Index.transaction

        def forcing(call: object, handle: int) -> None:
            call(handle)  # type: ignore[operator]
            self.forced.add(os.fstat(handle).st_ino)

        def pinning(index: Index, root: object) -> None:
            self.before_pin = set(self.forced)
            pin(index, root)  # type: ignore[arg-type]

        def beginning(index: Index, *, durable: bool) -> object:
            self.durable.append(durable)
            return transaction(index, durable=durable)

        patched.setattr(os, "fsync", lambda handle: forcing(sync, handle))
        patched.setattr(os, "fdatasync", lambda handle: forcing(data_sync, handle))
        patched.setattr(Index, "pin", pinning)
        patched.setattr(Index, "transaction", beginning)


def _packs(directory: Path) -> list[Path]:
    return list((directory / "packs").iterdir())


def test_file_is_synced_before_pinning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, disk = BlockStore(tmp_path), Disk(monkeypatch)
    store.add(SEVERAL)
    [pack] = _packs(tmp_path)
    assert disk.before_pin is not None
    assert {pack.stat().st_ino, pack.parent.stat().st_ino} <= disk.before_pin
    assert disk.durable == [True]


def test_single_blocks_are_synced_when_file_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, disk = BlockStore(tmp_path), Disk(monkeypatch)
    root = unixfs.build(SEVERAL, store.put)
    assert not disk.forced
    assert not any(disk.durable)
    store.pin(root)
    [pack] = _packs(tmp_path)
    assert disk.before_pin is not None
    assert {pack.stat().st_ino, pack.parent.stat().st_ino} <= disk.before_pin
    assert disk.durable[-1]


def test_file_is_contiguous_in_pack_with_deduplicated_chunks(tmp_path: Path) -> None:
    root = BlockStore(tmp_path).add(SEVERAL)
    [pack] = _packs(tmp_path)
    chunk = unixfs.CHUNK_BYTES
    leaves = SEVERAL[: 2 * chunk] + SEVERAL[3 * chunk :]
    assert pack.read_bytes()[: len(leaves)] == leaves
    assert BlockStore(tmp_path).fetch(root, max_bytes=LIMIT) == SEVERAL


@pytest.mark.parametrize("failing", ["fdatasync", "pwrite"])
def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    store = BlockStore(tmp_path)
    kept = store.add(b"kept")
    with monkeypatch.context() as disk:
        disk.setattr(os, failing, raising(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            store.add(SEVERAL)
    assert len(_packs(tmp_path)) == 1
    assert store.pins() == [kept]
    assert store.fetch(store.add(SEVERAL), max_bytes=LIMIT) == SEVERAL


def test_failed_disk_writes_are_not_reported_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports a write error once; the next fsync succeeds."""
    store, reported = BlockStore(tmp_path), threading.Event()

    def tell_once(handle: int, forced: object = os.fdatasync) -> None:
        if not reported.is_set():
            reported.set()
            raise OSError(5, "Input/output error")
        forced(handle)  # type: ignore[operator]

    monkeypatch.setattr(packs, "_FORCED_BYTES", unixfs.CHUNK_BYTES)
    with monkeypatch.context() as disk:
        disk.setattr(os, "fdatasync", tell_once)
        writer = store.writer()
        writer.write(SEVERAL)
        writer.finish()
        assert reported.wait(60)
        with pytest.raises(OSError, match="Input/output"):
            writer.commit(pin=True)
    assert not store.pins()
    assert not _packs(tmp_path)


def test_multi_file_upload_stores_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore(tmp_path)
    monkeypatch.setattr(packs.FileWriter, "commit", raising(OSError(28, "No space left on device")))
    client = TestClient(rpc.application(store, max_file_bytes=100), raise_server_exceptions=False)
    files = [("file", (name, name.encode())) for name in ("first", "second", "third")]
    answer = client.post("/api/v0/add", params={"cid-version": "1", "raw-leaves": "true"}, files=files)
    assert answer.status_code == 500
    assert not _packs(tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "removed"])
def test_damaged_block_is_named_until_stored_again(tmp_path: Path, damage: str) -> None:
    root = BlockStore(tmp_path).add(SEVERAL)
    [pack] = _packs(tmp_path)
    content = bytearray(pack.read_bytes())
    content[-1] ^= damage == "flipped"
    leaf = of_block(RAW, SEVERAL[:262_144])
    pack.write_bytes(content[: -9 if damage == "truncated" else None])
    if damage == "removed":
        pack.unlink()

    store = BlockStore(tmp_path)
    for _ in range(2):
        with pytest.raises(BlockNotFound, match=str(root)):
            store.fetch(root, max_bytes=LIMIT)
    if damage != "removed":
        assert store.get(leaf) == SEVERAL[:262_144]
    assert store.add(SEVERAL) == root
    assert store.fetch(root, max_bytes=LIMIT) == b"".join(store.read(root, max_bytes=LIMIT)) == SEVERAL
    assert len(_packs(tmp_path)) == 1  # the damaged one was of no use any more


@pytest.mark.parametrize("way", ["fetch", "read", "blocks", "get"])
def test_damaged_leaf_is_never_returned(tmp_path: Path, way: str) -> None:
    store = BlockStore(tmp_path)
    root = store.add(SEVERAL)
    [pack] = _packs(tmp_path)
    content = bytearray(pack.read_bytes())
    content[262_144 + 5] ^= 1
    pack.write_bytes(content)
    damaged = of_block(RAW, SEVERAL[262_144 : 2 * 262_144])
    ways = {
        "fetch": lambda: store.fetch(root, max_bytes=LIMIT),
        "read": lambda: list(store.read(root, max_bytes=LIMIT)),
        "blocks": lambda: list(store.blocks(root)),
        "get": lambda: store.get(damaged),
    }
    with pytest.raises(BlockNotFound, match=str(damaged)):
        ways[way]()
    with pytest.raises(BlockNotFound, match=str(damaged)):
        store.pin(root)


def test_store_of_earlier_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "blocks").mkdir()
    with pytest.raises(OSError, match="devnet reset"):
        BlockStore(tmp_path)


def test_non_database_index_raises_error(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.Error):
        BlockStore(tmp_path)
