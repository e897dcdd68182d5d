"""What a block store is made of: packs, which are files of blocks one after another, and the index of what is in them.

A pack is written once, front to back, under a lock that ends with its writer, and never changed afterwards. Its blocks
are in the store from the moment at which the index says so, all of them in one transaction. A pack that nobody writes
and in which the index has no block is what a killed writer, or a removal, left behind.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo_protocol.content.cid import Buffer, Cid

_PARAMETERS = 500  # SQLite's own limit is higher


_BUSY_SECONDS = 60.0


UNREADABLE = (FileNotFoundError, IsADirectoryError, PermissionError)
"""What opening a pack raises that is gone, or of no use: what it held counts as absent."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block lies: in which pack, from which byte, and how many bytes it has."""

    pack: str
    offset: int
    size: int


class Pack:
    """A pack being written. For one thread at a time.

    Raises:
        OSError: the disk refuses; in every method.
    """

    def __init__(self, folder: Path) -> None:
        while True:
            self.path = folder / uuid.uuid4().hex
            self._file = self.path.open("xb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file.fileno()).st_nlink:  # else it was taken for left behind before it was locked
                break
            self._file.close()
        self.places: dict[Cid, Place] = {}
        self.size = 0
        self._forcing = threading.Lock()
        self._refused: OSError | None = None

    def append(self, cid: Cid, block: Buffer) -> Place:
        """Write one block; returns where it lies."""
        place = self.places[cid] = Place(self.path.name, self.size, len(block))
        written = 0
        while written < len(block):
            written += os.pwrite(self._file.fileno(), memoryview(block)[written:], place.offset + written)
        self.size += len(block)
        return place

    def force_content(self) -> None:
        """Have what was appended on disk. May run in another thread, but not into :meth:`close`.

        What the disk refused once counts as lost for good: the system tells of it once, and forgets it then.
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
        """Have all that was appended on disk, and the pack's name."""
        self.force_content()
        force_to_disk(self.path.parent)

    def close(self) -> None:
        """Write no more."""
        self._file.close()


class Index:
    """Where each block lies and what is pinned: an SQLite database. Safe for threads and processes, not over a fork.

    Raises:
        sqlite3.Error: the disk refuses, or the database is damaged; in every method.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        with path.with_suffix(".lock").open("a") as opening:
            fcntl.flock(opening, fcntl.LOCK_EX)  # SQLite does not wait for others while it changes the journal's mode
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
        """Read all of it. Raises sqlite3.DatabaseError: it is damaged."""
        [(found,)] = self._rows("PRAGMA quick_check(1)", [])
        if found != "ok":
            raise sqlite3.DatabaseError(found)

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[None]:
        """All or nothing, alone among all processes; what is ``durable`` survives a power cut, as does all before."""
        with self._lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield

    def find(self, cids: Sequence[Cid]) -> dict[Cid, Place]:
        """Where these blocks lie; those that are not here are left out."""
        found: dict[Cid, Place] = {}
        for start in range(0, len(cids), _PARAMETERS):
            part = [cid.to_bytes() for cid in cids[start : start + _PARAMETERS]]
            marks = ",".join("?" * len(part))
            rows = self._rows(f"SELECT cid, pack, start, size FROM blocks WHERE cid IN ({marks})", part)
            found.update((Cid.from_bytes(cid), Place(*place)) for cid, *place in rows)
        return found

    def put(self, places: dict[Cid, Place]) -> set[str]:
        """Note where blocks lie; returns the packs in which some of them were said to lie before."""
        before = {place.pack for place in self.find(list(places)).values()}
        rows = [(cid.to_bytes(), place.pack, place.offset, place.size) for cid, place in places.items()]
        with self._lock:
            self._db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", rows)
        return before

    def forget(self, cid: Cid, place: Place) -> bool:
        """The block is not in this place; returns whether the index had still said so."""
        with self._lock:
            where = (cid.to_bytes(), place.pack, place.offset)
            return self._db.execute("DELETE FROM blocks WHERE cid=? AND pack=? AND start=?", where).rowcount > 0

    def blocks_in(self, pack: str) -> dict[Cid, Place]:
        """The blocks of one pack that are in use, in the order in which they lie there."""
        rows = self._rows("SELECT cid, start, size FROM blocks WHERE pack=? ORDER BY start", [pack])
        return {Cid.from_bytes(cid): Place(pack, start, size) for cid, start, size in rows}

    def packs(self) -> set[str]:
        """The packs in which a block is said to lie."""
        return {name for (name,) in self._rows("SELECT DISTINCT pack FROM blocks", [])}

    def uses(self, pack: str) -> bool:
        """Whether a block is said to lie in this pack."""
        return bool(self._rows("SELECT 1 FROM blocks WHERE pack=? LIMIT 1", [pack]))

    def remove(self, cids: Iterable[Cid]) -> None:
        """Forget blocks wherever they lie."""
        with self._lock:
            self._db.executemany("DELETE FROM blocks WHERE cid=?", [(cid.to_bytes(),) for cid in cids])

    def pin(self, root: Cid) -> None:
        """Note a pin."""
        self._rows("INSERT OR IGNORE INTO pins VALUES (?)", [root.to_bytes()])

    def unpin(self, root: Cid) -> bool:
        """Forget a pin; returns whether there was one."""
        with self._lock:
            return self._db.execute("DELETE FROM pins WHERE cid=?", [root.to_bytes()]).rowcount > 0

    def is_pinned(self, root: Cid) -> bool:
        """Whether this root is pinned."""
        return bool(self._rows("SELECT 1 FROM pins WHERE cid=?", [root.to_bytes()]))

    def pins(self) -> list[Cid]:
        """All pinned roots."""
        return [Cid.from_bytes(cid) for (cid,) in self._rows("SELECT cid FROM pins", [])]

    def _rows(self, statement: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(statement, parameters).fetchall()


def remove_unused(path: Path, index: Index) -> None:
    """Remove a pack, unless somebody writes it or ``index`` has a block in it."""
    with locked(path) as free:
        if free and not index.uses(path.name):
            path.unlink()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Holds a pack's lock, so that nobody removes it; gives whether nobody writes it, or removed it before."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = os.fstat(file.fileno()).st_nlink > 0
        except (*UNREADABLE, BlockingIOError):
            free = False
        yield free


def force_to_disk(path: Path) -> None:
    """Have a file's content, or a folder's names, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
