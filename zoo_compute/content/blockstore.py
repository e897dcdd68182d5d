"""Blocks and pins in a directory: a node's cache, and the store behind the embedded IPFS service.

``packs/`` holds files of blocks, one for each file that was added and some for blocks that came one by one;
``index.sqlite`` says where in them each block lies, and which roots are pinned (:mod:`zoo_compute.content.packs`).
Several
processes may share a directory, and may be killed at any moment: an added file is there whole or not at all. A
block is its own checksum: whatever a power cut or a failing disk tore is noticed when it is read, and counts as
absent. A pin is a promise, so its blocks are forced to disk before it is recorded, and the record is too.
"""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from zoo_compute.content.file_writer import FileWriter
from zoo_compute.content.packs import UNREADABLE, Index, Pack, Place, force_to_disk, locked, remove_unused
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import Buffer, Cid, ContentError, of_block, verify_block

log = logging.getLogger(__name__)


_THREADS = 4


_RUN_BYTES = 1 << 20


_RUNS_AHEAD = 8


_BLOCKS_PER_TASK = 4


_MAX_LOOSE_BYTES = 64 << 20
"""A pack of blocks that came one by one is followed by another at this size, so that removing some gives space back."""


class BlockNotFound(LookupError):
    """A block is not at hand."""

    code = "block_not_found"


class BlockStore:
    """A directory of verified blocks. Safe for threads and processes; not to be used on both sides of a fork.

    Raises:
        OSError, sqlite3.Error: the disk refuses; in every method.
    """

    def __init__(self, directory: Path) -> None:
        if (directory / "blocks").is_dir():
            raise OSError(f"{directory} is a block store of an earlier version: remove it, or use `devnet reset`")
        self._packs = directory / "packs"
        self._packs.mkdir(parents=True, exist_ok=True)
        self._index = Index(directory / "index.sqlite")
        self._pool = ThreadPoolExecutor(_THREADS, "blocks")  # hashing, reading and writing leave the interpreter's lock
        self._loose: Pack | None = None
        self._loose_lock = threading.Lock()

    def check(self) -> None:
        """Read the whole index. Raises sqlite3.DatabaseError: it is damaged."""
        self._index.check()

    def discard_unfinished(self) -> None:
        """Remove what killed processes left half-written; what others write now is left alone."""
        used = self._index.packs()
        for path in self._packs.iterdir():
            if path.name not in used:
                remove_unused(path, self._index)

    def has(self, cid: Cid) -> bool:
        """Whether the block is at hand."""
        return cid in self._index.find([cid])

    def block_size(self, cid: Cid) -> int:
        """Bytes in one block.

        Raises:
            BlockNotFound: if it is not at hand.
        """
        return self._place(cid).size

    def get(self, cid: Cid) -> bytes:
        """One block, verified.

        Raises:
            BlockNotFound: if it is not at hand, or was damaged on disk (it is then forgotten, to be stored anew).
        """
        while True:
            place = self._place(cid)
            with contextlib.suppress(*UNREADABLE, ContentError), self._opened(place.pack) as file:
                return verify_block(cid, os.pread(file.fileno(), place.size, place.offset))
            if self._index.forget(cid, place):  # else it was moved to another pack meanwhile
                log.warning("block %s was damaged on disk (%s)", cid, place)
                raise BlockNotFound(f"could not find block {cid}: it was damaged on disk")

    def put(self, cid: Cid, data: Buffer) -> None:
        """Store one block; storing it again changes nothing.

        Raises:
            BlockMismatch, ContentTooLarge: if ``data`` is not that block.
        """
        verify_block(cid, data)
        if self.has(cid):
            return
        with self._loose_lock:
            if self._loose is None:
                self._loose = Pack(self._packs)
            with self._index.transaction(durable=False):
                self._index.put({cid: self._loose.append(cid, data)})
            if self._loose.size >= _MAX_LOOSE_BYTES:
                self._close_loose()

    def writer(self) -> FileWriter:
        """Stores a file that arrives in pieces."""
        return FileWriter(Pack(self._packs), self._index, self._pool)

    def add(self, data: Buffer | Iterable[Buffer]) -> Cid:
        """Store and pin a file, given whole or in pieces of any length; returns its CID."""
        writer = self.writer()
        try:
            for piece in [data] if isinstance(data, Buffer) else data:
                writer.write(piece)
            root = writer.finish().cid
            writer.commit(pin=True)
        finally:
            writer.discard()
        return root

    def read(self, root: Cid, *, max_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Bytes ``start`` to ``stop`` of a file piece by piece, each verified. Its removal meanwhile does not disturb.

        Raises:
            BlockNotFound, InvalidBlock, ContentTooLarge: see :meth:`get` and :func:`zoo_protocol.content.unixfs.read`.
        """
        leaves = list(unixfs.leaves(root, self.get, max_bytes=max_bytes, start=start, stop=stop))
        blocks = self.read_blocks([leaf.cid for leaf in leaves])

        def pieces() -> Iterator[memoryview]:
            for leaf, (_cid, data) in zip(leaves, blocks, strict=True):
                unixfs.check_size(leaf, len(data), max_bytes=max_bytes)
                yield data[max(0, start - leaf.offset) : None if stop is None else max(0, stop - leaf.offset)]

        return pieces()

    def fetch(self, root: Cid, *, max_bytes: int) -> bytes:
        """A whole file in memory, verified; raises as :meth:`read`."""
        leaves = list(unixfs.leaves(root, self.get, max_bytes=max_bytes))
        cids = [leaf.cid for leaf in leaves]
        places, packs = self._open(cids)
        for leaf in leaves:
            unixfs.check_size(leaf, places[leaf.cid].size, max_bytes=max_bytes)
        runs = []
        for run in _runs(cids, places, max_bytes):
            data = run.read(packs)  # all of the file, if it was added in one go
            blocks = list(run.blocks(data))
            parts = (blocks[at : at + _BLOCKS_PER_TASK] for at in range(0, len(blocks), _BLOCKS_PER_TASK))
            valid = all(self._pool.map(_all_valid, parts))
            runs.append(data if valid else self._one_by_one(run))
        return b"".join(runs)  # of one this makes no copy

    def blocks(self, root: Cid) -> Iterator[tuple[Cid, memoryview]]:
        """Every block of a file, verified, in the order of CAR files; raises as :meth:`read`."""
        return self.read_blocks(list(unixfs.cids(root, self.get)))

    def pin(self, root: Cid) -> int:
        """Record that the file under ``root`` must be kept; returns its size in bytes.

        Raises:
            BlockNotFound: if a block of it is missing.
            ContentError: if it is no file.
        """
        cids = list(unixfs.cids(root, self.get))
        for _block in self.read_blocks(cids):
            pass
        for pack in {place.pack for place in self._index.find(cids).values()}:
            with contextlib.suppress(FileNotFoundError):  # moved to another, which is on disk
                force_to_disk(self._packs / pack)
        force_to_disk(self._packs)
        with self._index.transaction(durable=True):
            missing = set(cids) - self._index.find(cids).keys()
            if missing:
                raise BlockNotFound(f"could not find block {missing.pop()}: it was removed while it was pinned")
            self._index.pin(root)
        return unixfs.file_size(root, self.get)

    def unpin(self, root: Cid) -> bool:
        """Forget a pin; returns whether there was one. Its blocks stay until they are collected."""
        return self._index.unpin(root)

    def is_pinned(self, root: Cid) -> bool:
        """Whether ``root`` itself is pinned."""
        return self._index.is_pinned(root)

    def pins(self) -> list[Cid]:
        """All pinned roots."""
        return self._index.pins()

    def collect(self, *, older_than: float = 0.0) -> int:
        """Remove every block that no pin needs, in packs that are older than ``older_than`` seconds; returns how many.

        A pack without blocks is removed, and one that is less than half used is written anew. Packs that are being
        written are left alone. What somebody adds meanwhile waits for the end; a file whose blocks came one by one and
        that is not pinned yet may lose some, which pinning it then says.

        Raises:
            BlockNotFound, ContentError: a pin's inner node is missing or damaged. Nothing is removed.
        """
        with self._loose_lock:
            self._close_loose()
        latest, removed = time.time() - older_than, 0
        with self._index.transaction(durable=True):
            kept = {cid for root in self.pins() for cid in unixfs.cids(root, self.get)}
            for path in list(self._packs.iterdir()):
                with locked(path) as free:
                    if free and path.stat().st_mtime <= latest:
                        removed += self._remove_from(path, kept)
        self.discard_unfinished()
        return removed

    def _remove_from(self, path: Path, kept: set[Cid]) -> int:
        """Remove what is not ``kept`` from one pack's part of the index, and move the rest if it is little."""
        blocks = self._index.blocks_in(path.name)
        dead = blocks.keys() - kept
        self._index.remove(dead)
        live = [(cid, place) for cid, place in blocks.items() if cid in kept]
        if live and 2 * sum(place.size for _cid, place in live) < path.stat().st_size:
            pack = Pack(self._packs)
            with self._opened(path.name) as handle:
                for cid, place in live:
                    pack.append(cid, os.pread(handle.fileno(), place.size, place.offset))
            pack.force()
            self._index.put(pack.places)
            pack.close()
        return len(dead)

    def _place(self, cid: Cid) -> Place:
        found = self._index.find([cid])
        if cid not in found:
            raise BlockNotFound(f"could not find block {cid} in this store")
        return found[cid]

    def _close_loose(self) -> None:
        if self._loose is not None:
            self._loose.close()
            self._loose = None

    def _opened(self, pack: str) -> FileIO:
        return FileIO(self._packs / pack)

    def _open(self, cids: Sequence[Cid]) -> tuple[dict[Cid, Place], dict[str, FileIO]]:
        """Where these blocks lie, and their packs, open: from here on removing the blocks changes nothing."""
        while True:
            places = self._index.find(cids)
            missing = next((cid for cid in cids if cid not in places), None)
            if missing is not None:
                raise BlockNotFound(f"could not find block {missing} in this store")
            packs: dict[str, FileIO] = {}
            for cid, place in places.items():
                if place.pack not in packs:
                    try:
                        packs[place.pack] = self._opened(place.pack)
                    except UNREADABLE:
                        self.get(cid)  # it lies in another pack by now, or this says that it is lost
                        break
            else:
                return places, packs

    def read_blocks(self, cids: Sequence[Cid]) -> Iterator[tuple[Cid, memoryview]]:
        """These blocks in order, which threads of the pool read and verify, some ahead; raises as :meth:`get`."""
        places, packs = self._open(cids)

        def read(run: _Run) -> list[tuple[Cid, memoryview]]:
            blocks = list(run.blocks(run.read(packs)))
            return blocks if _all_valid(blocks) else list(run.blocks(self._one_by_one(run)))

        def blocks() -> Iterator[tuple[Cid, memoryview]]:
            ahead: deque[Future[list[tuple[Cid, memoryview]]]] = deque()
            for run in _runs(cids, places, _RUN_BYTES):
                ahead.append(self._pool.submit(read, run))
                if len(ahead) == _RUNS_AHEAD:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()

        return blocks()

    def _one_by_one(self, run: "_Run") -> bytes:
        """The run's bytes after all, if the damaged block was stored anew meanwhile; else this says which one it is."""
        return b"".join(map(self.get, run.cids))


class _Run:
    """Blocks that lie one after another in a pack."""

    def __init__(self, cid: Cid, place: Place) -> None:
        self.cids = [cid]
        self._sizes = [place.size]
        self._pack, self._start, self._end = place.pack, place.offset, place.offset + place.size

    def take(self, cid: Cid, place: Place, max_bytes: int) -> bool:
        """Add a block if it is the next one and the run stays within ``max_bytes``; returns whether it was."""
        end = self._end + place.size
        if (place.pack, place.offset) != (self._pack, self._end) or end - self._start > max_bytes:
            return False
        self.cids.append(cid)
        self._sizes.append(place.size)
        self._end = end
        return True

    def read(self, packs: Mapping[str, FileIO]) -> bytes:
        """Its bytes, not verified; fewer if the pack ends early."""
        return os.pread(packs[self._pack].fileno(), self._end - self._start, self._start)

    def blocks(self, data: bytes) -> Iterator[tuple[Cid, memoryview]]:
        """The blocks in the run's bytes."""
        view, start = memoryview(data), 0
        for cid, size in zip(self.cids, self._sizes, strict=True):
            yield cid, view[start : start + size]
            start += size


def _runs(cids: Sequence[Cid], places: Mapping[Cid, Place], max_bytes: int) -> Iterator[_Run]:
    """``cids`` in their order, as runs of up to ``max_bytes``."""
    run: _Run | None = None
    for cid in cids:
        if run is not None and run.take(cid, places[cid], max_bytes):
            continue
        if run is not None:
            yield run
        run = _Run(cid, places[cid])
    if run is not None:
        yield run


def _all_valid(blocks: Iterable[tuple[Cid, memoryview]]) -> bool:
    return all(of_block(cid.codec, block) == cid for cid, block in blocks)
