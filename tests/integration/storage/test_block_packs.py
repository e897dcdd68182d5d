"""Several processes on one block store, killed while they write, read and collect."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import Cid

LIMIT = 1 << 30
CHUNK = unixfs.CHUNK_BYTES
BEFORE = random.Random(1).randbytes(3 * CHUNK + 5)
ADDED = random.Random(2).randbytes(5 * CHUNK + 7)

_KILLED = """
import os, signal, sys
from pathlib import Path
from zoo_compute.content import blockstore, packs
from zoo_compute.content.packs import Index, Pack

stage, directory = sys.argv[1], Path(sys.argv[2])
store = blockstore.BlockStore(directory)

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

def then_die(call):
    def both(*arguments, **options):
        call(*arguments, **options)
        die()
    return both

write, count = os.pwrite, 0

def half(handle, data, offset):
    global count
    count += 1
    if count == 3:
        write(handle, data[: len(data) // 2], offset)
        die()
    return write(handle, data, offset)

owner, name, replacement = {
    "nothing written": (Pack, "append", die),
    "amid a block": (os, "pwrite", half),
    "written": (Pack, "force", die),
    "forced": (Index, "put", die),
    "amid the transaction": (Index, "put", then_die(Index.put)),
    "before its end": (Index, "pin", then_die(Index.pin)),
    "committed": (packs, "remove_unused", die),
}[stage]
setattr(owner, name, replacement)
store.add(sys.stdin.buffer.read())
"""


def _packs(directory: Path) -> list[Path]:
    return list((directory / "packs").iterdir())


def _kill_while_adding(directory: Path, stage: str, data: bytes) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, stage, str(directory)], input=data, timeout=600)
    assert ended.returncode == -9


@pytest.mark.parametrize(
    ("stage", "there"),
    [
        ("nothing written", False),
        ("amid a block", False),
        ("written", False),
        ("forced", False),
        ("amid the transaction", False),
        ("before its end", False),
        ("committed", True),
    ],
)
def test_killed_writer_leaves_all_or_nothing(tmp_path, stage, there):
    before = BlockStore(tmp_path).add(BEFORE)
    _kill_while_adding(tmp_path, stage, ADDED)
    store = BlockStore(tmp_path)
    added = unixfs.build(ADDED, lambda _cid, _block: None)
    assert store.is_pinned(added) is there
    blocks: set[Cid] = set()
    unixfs.build(ADDED, lambda cid, _block: blocks.add(cid))
    assert {cid for cid in blocks if store.has(cid)} == (blocks if there else set())

    store.discard_unfinished()
    assert len(_packs(tmp_path)) == (2 if there else 1)
    assert store.fetch(before, max_bytes=LIMIT) == BEFORE
    assert store.fetch(store.add(ADDED), max_bytes=LIMIT) == ADDED


def test_killed_replacement_is_completed_on_next_start(tmp_path):
    root = BlockStore(tmp_path).add(BEFORE)
    _kill_while_adding(tmp_path, "committed", BEFORE)
    store = BlockStore(tmp_path)
    assert len(_packs(tmp_path)) == 2
    store.discard_unfinished()
    assert len(_packs(tmp_path)) == 1
    assert store.fetch(root, max_bytes=LIMIT) == BEFORE


def test_files_being_written_are_not_removed(tmp_path):
    store, other = BlockStore(tmp_path), BlockStore(tmp_path)
    writer = store.writer()
    writer.write(ADDED[: 4 * CHUNK])
    single = unixfs.build(b"single", other.put)
    other.discard_unfinished()
    assert store.collect(older_than=3600) == 0
    writer.write(ADDED[4 * CHUNK :])
    root = writer.finish().cid
    writer.commit(pin=True)
    assert other.fetch(root, max_bytes=LIMIT) == ADDED
    assert other.get(single) == b"single"
    unixfs.build(b"another", other.put)  # into the pack that the collection saw
    assert len(_packs(tmp_path)) == 2


_BUSY = """
import random, sys, time
from pathlib import Path
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_protocol.content import unixfs

directory, seed = Path(sys.argv[1]), int(sys.argv[2])
store = BlockStore(directory)
for number in range(6):
    mine = random.Random(f"{seed} {number}").randbytes(700_000)
    shared = random.Random(f"shared {number}").randbytes(600_000)
    single = unixfs.build(mine[:300_000], store.put)
    store.pin(single)
    roots = [(store.add(mine), mine), (store.add(shared), shared), (single, mine[:300_000])]
    for root, data in roots:
        assert store.fetch(root, max_bytes=1 << 30) == b"".join(store.read(root, max_bytes=1 << 30)) == data
    for other in store.pins():
        try:
            sum(len(data) for _cid, data in store.blocks(other))
        except BlockNotFound:
            assert not store.is_pinned(other), other  # unpinned and collected since
    store.unpin(roots[0][0])
    if seed == 0:
        store.collect()
print("done")
"""


def test_processes_write_read_and_collect_concurrently(tmp_path):
    running = [
        subprocess.Popen([sys.executable, "-c", _BUSY, str(tmp_path), str(seed)], stdout=subprocess.PIPE)
        for seed in range(3)
    ]
    assert [process.communicate(timeout=600)[0] for process in running] == [b"done\n"] * 3
    store = BlockStore(tmp_path)
    assert len(store.pins()) == 3 * 6 + 6
    store.collect()
    for root in store.pins():
        assert store.fetch(root, max_bytes=LIMIT)
    size = sum(path.stat().st_size for path in _packs(tmp_path))
    assert size <= 2 * (3 * 6 * 300_000 + 6 * 600_000) + 100_000  # less than half of a pack is unneeded


def test_reading_continues_during_unpin_and_collection(tmp_path):
    data = random.Random(3).randbytes(40 * CHUNK)
    store, other = BlockStore(tmp_path), BlockStore(tmp_path)
    root = store.add(data)
    pieces, blocks = store.read(root, max_bytes=LIMIT), store.blocks(root)
    received = bytes(next(pieces))
    assert other.unpin(root)
    assert other.collect() == 41
    assert not _packs(tmp_path)
    assert received + b"".join(pieces) == data
    assert len(dict(blocks)) == 41
    with pytest.raises(BlockNotFound, match=str(root)):
        store.read(root, max_bytes=LIMIT)


def test_unpinning_frees_space_in_partly_used_packs(tmp_path):
    store = BlockStore(tmp_path)
    parts = [random.Random(seed).randbytes(2 * CHUNK) for seed in range(4)]
    alone = store.add(parts[0])
    joined = store.add(b"".join(parts[1:]))
    tail = store.add(parts[3])  # its leaves are blocks of the other file too
    assert store.unpin(alone)
    assert store.collect() == 3
    assert len(_packs(tmp_path)) == 2
    assert store.unpin(joined)
    store.collect()
    [pack] = _packs(tmp_path)
    assert pack.stat().st_size < 2 * CHUNK + 1000
    assert store.fetch(tail, max_bytes=LIMIT) == parts[3]

    several = [unixfs.build(random.Random(seed).randbytes(2 * CHUNK), store.put) for seed in range(10, 20)]
    store.pin(several[3])
    store.collect()
    assert sum(path.stat().st_size for path in _packs(tmp_path)) < 4 * CHUNK + 2000
    assert len(store.fetch(several[3], max_bytes=LIMIT)) == 2 * CHUNK


def test_collection_keeps_young_and_damaged_blocks(tmp_path):
    store = BlockStore(tmp_path)
    root = store.add(BEFORE)
    loose = unixfs.build(ADDED, store.put)
    assert store.collect(older_than=60) == 0
    for path in _packs(tmp_path):
        os.utime(path, (time.time() - 120,) * 2)
    assert store.collect(older_than=60) == 7
    assert not store.has(loose)

    [pack] = _packs(tmp_path)
    content = bytearray(pack.read_bytes())
    content[-1] ^= 1  # the root node is the last block
    pack.write_bytes(content)
    with pytest.raises(BlockNotFound, match=str(root)):
        store.collect()
    assert store.has(unixfs.build(BEFORE[:CHUNK], lambda _cid, _block: None))
