"""Block store: verified blocks and pins in a directory.

``packs/`` contains files of blocks, one per added file and some for single blocks. ``index.sqlite`` maps blocks to
packs and lists pinned roots (:mod:`zoo_compute.content.packs`). Several processes can share a directory and can be
killed at any moment: a file is added atomically. Blocks are verified when read, and a damaged one counts as missing. A
pin is durable: its blocks are forced to disk before it is recorded.
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

from zoo_compute.content.packs import UNREADABLE, FileWriter, Index, Pack, Place, force_to_disk, locked, remove_unused
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import Buffer, Cid, ContentError, of_block, verify_block

log = logging.getLogger(__name__)
_THREADS = 4
_RUN_BYTES = 1 << 20
_RUNS_AHEAD = 8
_BLOCKS_PER_TASK = 4

_MAX_LOOSE_BYTES = 64 << 20
"""Maximum size of a pack of single blocks, so that removing some of them frees space."""


class BlockNotFound(LookupError):
    """A block is not in this store or not on any gateway."""

    code = "block_not_found"


class BlockStore:
    """Directory of verified blocks. Safe for threads and processes, not across a fork.

    Raises:
        OSError, sqlite3.Error: the disk refuses; in every method.
    """

    def __init__(self, directory: Path) -> None:
        if (directory / "blocks").is_dir():
            raise OSError(f"{directory} is a block store of an earlier version. Remove it, or use `devnet reset`")
        self._packs = directory / "packs"
        self._packs.mkdir(parents=True, exist_ok=True)
        self._index = Index(directory / "index.sqlite")
        self._pool = ThreadPoolExecutor(_THREADS, "blocks")  # hashing and file access release the GIL
        self._loose: Pack | None = None
        self._loose_lock = threading.Lock()

    def check(self) -> None:
        """Read the whole index. Raises sqlite3.DatabaseError if it is damaged."""
        self._index.check()

    def discard_unfinished(self) -> None:
        """Remove unfinished packs of killed processes; packs of running writers stay."""
        used = self._index.packs()
        for path in self._packs.iterdir():
            if path.name not in used:
                remove_unused(path, self._index)

    def has(self, cid: Cid) -> bool:
        return cid in self._index.find([cid])

    def block_size(self, cid: Cid) -> int:
        """Return the size of a block in bytes. Raises BlockNotFound."""
        return self._place(cid).size

    def get(self, cid: Cid) -> bytes:
        """Return one block, verified.

        Raises:
            BlockNotFound: missing, or damaged on disk; a damaged block is removed from the index.
        """
        while True:
            place = self._place(cid)
            with contextlib.suppress(*UNREADABLE, ContentError), self._opened(place.pack) as file:
                return verify_block(cid, os.pread(file.fileno(), place.size, place.offset))
            if self._index.forget(cid, place):  # otherwise it moved to another pack
                log.warning("block_damaged cid=%s place=%s", cid, place)
                raise BlockNotFound(f"could not find block {cid}: it was damaged on disk")

    def put(self, cid: Cid, data: Buffer) -> None:
        """Store one block; idempotent. Raises BlockMismatch, ContentTooLarge."""
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
        """Return a writer for a file that arrives in chunks."""
        return FileWriter(Pack(self._packs), self._index, self._pool)

    def add(self, data: Buffer | Iterable[Buffer]) -> Cid:
        """Store and pin a file, given whole or in chunks of any length; returns its CID."""
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
        """Yield bytes ``start`` to ``stop`` in verified chunks; a removal does not interrupt.

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
        """Return a whole file, verified; raises as :meth:`read`."""
        leaves = list(unixfs.leaves(root, self.get, max_bytes=max_bytes))
        cids = [leaf.cid for leaf in leaves]
        places, packs = self._open(cids)
        for leaf in leaves:
            unixfs.check_size(leaf, places[leaf.cid].size, max_bytes=max_bytes)
        runs = []
        for run in _runs(cids, places, max_bytes):
            data = run.read(packs)  # the whole file if it was added at once
            blocks = list(run.blocks(data))
            parts = (blocks[at : at + _BLOCKS_PER_TASK] for at in range(0, len(blocks), _BLOCKS_PER_TASK))
            valid = all(self._pool.map(_all_valid, parts))
            runs.append(data if valid else self._one_by_one(run))
        return b"".join(runs)  # a single run is not copied

    def blocks(self, root: Cid) -> Iterator[tuple[Cid, memoryview]]:
        """Yield every block of a file, verified, in the order of CAR files; raises as :meth:`read`."""
        return self.read_blocks(list(unixfs.cids(root, self.get)))

    def pin(self, root: Cid) -> int:
        """Pin the file under ``root``; returns its size in bytes.

        Raises:
            BlockNotFound: a block of it is missing.
            ContentError: it is not a file.
        """
        cids = list(unixfs.cids(root, self.get))
        for _block in self.read_blocks(cids):
            pass
        for pack in {place.pack for place in self._index.find(cids).values()}:
            with contextlib.suppress(FileNotFoundError):  # its blocks moved to another pack, which is on disk
                force_to_disk(self._packs / pack)
        force_to_disk(self._packs)
        with self._index.transaction(durable=True):
            missing = set(cids) - self._index.find(cids).keys()
            if missing:
                raise BlockNotFound(f"could not find block {missing.pop()}: it was removed while it was pinned")
            self._index.pin(root)
        return unixfs.file_size(root, self.get)

    def unpin(self, root: Cid) -> bool:
        """Remove a pin; returns whether it existed. Its blocks stay until they are collected."""
        return self._index.unpin(root)

    def is_pinned(self, root: Cid) -> bool:
        return self._index.is_pinned(root)

    def pins(self) -> list[Cid]:
        return self._index.pins()

    def collect(self, *, older_than: float = 0.0) -> int:
        """Remove unpinned blocks in packs older than ``older_than`` seconds; returns their number.

        Empty packs are removed, and packs that are less than half used are rewritten. Packs with a writer stay.
        Concurrent additions wait. An unpinned file of single blocks can lose some, which a later pin reports.

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
        """Remove the blocks of one pack that are not ``kept``; a pack with few others is rewritten."""
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
        """Return the blocks' places and their open packs, which keep removed blocks readable."""
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
                        self.get(cid)  # raises if the block is lost; otherwise it moved to another pack
                        break
            else:
                return places, packs

    def read_blocks(self, cids: Sequence[Cid]) -> Iterator[tuple[Cid, memoryview]]:
        """Yield these blocks in order; pool threads read and verify ahead. Raises as :meth:`get`."""
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
        """Return the run's bytes if a damaged block was stored again; otherwise raise."""
        return b"".join(map(self.get, run.cids))


class _Run:
    def __init__(self, cid: Cid, place: Place) -> None:
        self.cids = [cid]
        self._sizes = [place.size]
        self._pack, self._start, self._end = place.pack, place.offset, place.offset + place.size

    def take(self, cid: Cid, place: Place, max_bytes: int) -> bool:
        """Add an adjacent block within ``max_bytes``; return True if it was added."""
        end = self._end + place.size
        if (place.pack, place.offset) != (self._pack, self._end) or end - self._start > max_bytes:
            return False
        self.cids.append(cid)
        self._sizes.append(place.size)
        self._end = end
        return True

    def read(self, packs: Mapping[str, FileIO]) -> bytes:
        """Return the bytes, not verified; fewer if the pack ends early."""
        return os.pread(packs[self._pack].fileno(), self._end - self._start, self._start)

    def blocks(self, data: bytes) -> Iterator[tuple[Cid, memoryview]]:
        """Yield the blocks in the run's bytes."""
        view, start = memoryview(data), 0
        for cid, size in zip(self.cids, self._sizes, strict=True):
            yield cid, view[start : start + size]
            start += size


def _runs(cids: Sequence[Cid], places: Mapping[Cid, Place], max_bytes: int) -> Iterator[_Run]:
    """Group ``cids`` in order into runs of up to ``max_bytes``."""
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
