"""Packs (files of adjacent blocks), the index of a block store, and the writer of a file.

A pack is written once, front to back, under its writer's lock, and never changes afterwards. One index transaction adds
all its blocks. A pack without writer and without indexed blocks is a leftover of a killed writer or of a removal.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import DAG_PB, Buffer, Cid

_PARAMETERS = 500  # below SQLite's limit
_BUSY_SECONDS = 60.0

_FORCED_BYTES = 32 << 20
"""Bytes between two background flushes, so that the final flush is short."""

UNREADABLE = (FileNotFoundError, IsADirectoryError, PermissionError)
"""Errors of opening a pack that is missing or unusable; its blocks count as missing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a block: pack, offset and size in bytes."""

    pack: str
    offset: int
    size: int


class Pack:
    """Pack being written, by one thread at a time. Methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        while True:
            self.path = folder / uuid.uuid4().hex
            self._file = self.path.open("xb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file.fileno()).st_nlink:  # otherwise it was removed as unused before the lock
                break
            self._file.close()
        self.places: dict[Cid, Place] = {}
        self.size = 0
        self._forcing = threading.Lock()
        self._refused: OSError | None = None

    def append(self, cid: Cid, block: Buffer) -> Place:
        """Write one block; returns its place."""
        place = self.places[cid] = Place(self.path.name, self.size, len(block))
        written = 0
        while written < len(block):
            written += os.pwrite(self._file.fileno(), memoryview(block)[written:], place.offset + written)
        self.size += len(block)
        return place

    def force_content(self) -> None:
        """Force appended blocks to disk, in any thread, but not during :meth:`close`.

        An error is permanent: the system reports a failed write only once.
        """
        with self._forcing:
            if self._refused is not None:
                raise self._refused
            try:
                os.fdatasync(self._file.fileno())
            except OSError as error:
                self._refused = error
                raise

    def force(self) -> None:
        """Force all appended blocks and the pack's name to disk."""
        self.force_content()
        force_to_disk(self.path.parent)

    def close(self) -> None:
        self._file.close()


class Index:
    """SQLite index of block places and pins. Safe for threads and processes, not across a fork.

    Raises:
        sqlite3.Error: the disk refuses, or the database is damaged; in every method.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        with path.with_suffix(".lock").open("a") as opening:
            fcntl.flock(opening, fcntl.LOCK_EX)  # SQLite does not wait while another process changes the journal mode
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(
                """
                CREATE TABLE IF NOT EXISTS blocks
                    (cid BLOB PRIMARY KEY, pack TEXT NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL);
                CREATE INDEX IF NOT EXISTS blocks_of_pack ON blocks (pack);
                CREATE TABLE IF NOT EXISTS pins (cid BLOB PRIMARY KEY);
                """
            )

    def check(self) -> None:
        """Read the whole index. Raises sqlite3.DatabaseError if it is damaged."""
        [(found,)] = self._rows("PRAGMA quick_check(1)", [])
        if found != "ok":
            raise sqlite3.DatabaseError(found)

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[None]:
        """Run an exclusive transaction; ``durable`` survives a power cut, with all earlier ones."""
        with self._lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield

    def find(self, cids: Sequence[Cid]) -> dict[Cid, Place]:
        """Return the places of these blocks; missing blocks are omitted."""
        found: dict[Cid, Place] = {}
        for start in range(0, len(cids), _PARAMETERS):
            part = [cid.to_bytes() for cid in cids[start : start + _PARAMETERS]]
            marks = ",".join("?" * len(part))
            rows = self._rows(f"SELECT cid, pack, start, size FROM blocks WHERE cid IN ({marks})", part)
            found.update((Cid.from_bytes(cid), Place(*place)) for cid, *place in rows)
        return found

    def put(self, places: dict[Cid, Place]) -> set[str]:
        """Record places; returns the packs of their earlier places."""
        before = {place.pack for place in self.find(list(places)).values()}
        rows = [(cid.to_bytes(), place.pack, place.offset, place.size) for cid, place in places.items()]
        with self._lock:
            self._db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", rows)
        return before

    def forget(self, cid: Cid, place: Place) -> bool:
        """Remove a block's place; returns whether the index contained it."""
        with self._lock:
            where = (cid.to_bytes(), place.pack, place.offset)
            return self._db.execute("DELETE FROM blocks WHERE cid=? AND pack=? AND start=?", where).rowcount > 0

    def blocks_in(self, pack: str) -> dict[Cid, Place]:
        """Return the indexed blocks of one pack in the order of their offsets."""
        rows = self._rows("SELECT cid, start, size FROM blocks WHERE pack=? ORDER BY start", [pack])
        return {Cid.from_bytes(cid): Place(pack, start, size) for cid, start, size in rows}

    def packs(self) -> set[str]:
        return {name for (name,) in self._rows("SELECT DISTINCT pack FROM blocks", [])}

    def uses(self, pack: str) -> bool:
        return bool(self._rows("SELECT 1 FROM blocks WHERE pack=? LIMIT 1", [pack]))

    def remove(self, cids: Iterable[Cid]) -> None:
        with self._lock:
            self._db.executemany("DELETE FROM blocks WHERE cid=?", [(cid.to_bytes(),) for cid in cids])

    def pin(self, root: Cid) -> None:
        self._rows("INSERT OR IGNORE INTO pins VALUES (?)", [root.to_bytes()])

    def unpin(self, root: Cid) -> bool:
        """Remove a pin; returns whether it existed."""
        with self._lock:
            return self._db.execute("DELETE FROM pins WHERE cid=?", [root.to_bytes()]).rowcount > 0

    def is_pinned(self, root: Cid) -> bool:
        return bool(self._rows("SELECT 1 FROM pins WHERE cid=?", [root.to_bytes()]))

    def pins(self) -> list[Cid]:
        return [Cid.from_bytes(cid) for (cid,) in self._rows("SELECT cid FROM pins", [])]

    def _rows(self, statement: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(statement, parameters).fetchall()


class FileWriter:
    """Writer of one file in a pack of its own; each block is hashed once and written once.

    Buffers must not change before :meth:`finish` returns. End with :meth:`commit` or :meth:`discard`.
    """

    def __init__(self, pack: Pack, index: Index, pool: ThreadPoolExecutor) -> None:
        self._pack = pack
        self._index = index
        self._pool = pool
        self._builder = unixfs.FileBuilder(self._put, executor=pool)
        self.write = self._builder.write
        self._nodes: list[tuple[Cid, Buffer]] = []
        self._root: Cid | None = None
        self._forcing: Future[None] | None = None

    @property
    def size(self) -> int:
        return self._builder.size

    def finish(self) -> unixfs.Link:
        """Close the file; returns the link to its root. The store does not contain it yet."""
        link = self._builder.finish()
        for node in self._nodes:
            self._pack.append(*node)
        self._root = link.cid
        return link

    def _put(self, cid: Cid, block: Buffer) -> None:
        if cid.codec == DAG_PB:
            self._nodes.append((cid, block))  # after the leaves, which stay adjacent
            return
        if cid in self._pack.places:  # equal chunks are stored once
            return
        forced = self._pack.size // _FORCED_BYTES
        self._pack.append(cid, block)
        if self._pack.size // _FORCED_BYTES > forced and (self._forcing is None or self._forcing.done()):
            self._forcing = self._pool.submit(self._pack.force_content)

    def commit(self, *, pin: bool) -> None:
        """Force the file to disk and add it to the store; packs that become unused are removed.

        It replaces blocks that the store already has, which repairs damaged ones.
        """
        assert self._root is not None, "call finish() first"
        try:
            self._pack.force()
            with self._index.transaction(durable=pin):
                replaced = self._index.put(self._pack.places)
                if pin:
                    self._index.pin(self._root)
        finally:
            self.discard()
        for pack in replaced:
            remove_unused(self._pack.path.with_name(pack), self._index)

    def discard(self) -> None:
        """Stop writing, and remove the pack unless it was committed. Idempotent."""
        if self._forcing is not None:
            wait([self._forcing])
        self._pack.close()
        remove_unused(self._pack.path, self._index)


def remove_unused(path: Path, index: Index) -> None:
    """Remove a pack without writer and without blocks in ``index``."""
    with locked(path) as free:
        if free and not index.uses(path.name):
            path.unlink()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a pack against removal; yields False if it has a writer or was removed."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.fstat(file.fileno()).st_nlink > 0
        except (*UNREADABLE, BlockingIOError):
            free = False
        yield free


def force_to_disk(path: Path) -> None:
    """Force a file's content, or a folder's names, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
