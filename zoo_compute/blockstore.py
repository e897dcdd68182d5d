"""Blocks and pins in a directory: a node's cache, and the store behind the embedded IPFS service.

``blocks/<two characters>/<cid>`` holds one block per file, ``pins/<cid>`` is an empty file per pinned root.
Files appear by rename, so a process killed at any moment leaves whole blocks only, and several processes may
share a directory. A block is its own checksum: whatever a power cut tore is noticed when it is read, and counts as
absent. A pin is a promise, so its blocks are forced to disk before it is recorded.
"""

import contextlib
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from zoo_protocol import unixfs
from zoo_protocol.cid import Cid, ContentError, InvalidCid, parse, verify_block

log = logging.getLogger(__name__)


_THREADS = 8


class BlockNotFound(LookupError):
    """A block is not at hand."""

    code = "block_not_found"


class BlockStore:
    """A directory of verified blocks. Safe for threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._blocks = directory / "blocks"
        self._pins = directory / "pins"
        self._partial = directory / "partial"
        for folder in (self._blocks, self._pins, self._partial):
            folder.mkdir(parents=True, exist_ok=True)

    def discard_partial_writes(self) -> None:
        """Remove what a killed process left half-written. Only for the sole user of the directory, at its start."""
        for path in self._partial.iterdir():
            path.unlink()

    def _path(self, cid: Cid) -> Path:
        name = str(cid)
        return self._blocks / name[-3:-1] / name  # the last character carries two bits only

    def has(self, cid: Cid) -> bool:
        """Whether the block is at hand."""
        return self._path(cid).is_file()

    def block_size(self, cid: Cid) -> int:
        """Bytes in one block.

        Raises:
            BlockNotFound: if it is not at hand.
        """
        try:
            return self._path(cid).stat().st_size
        except FileNotFoundError:
            raise BlockNotFound(f"could not find block {cid} in this store") from None

    def get(self, cid: Cid) -> bytes:
        """One block, verified.

        Raises:
            BlockNotFound: if it is not at hand, or was damaged on disk (it is then removed, to be stored anew).
        """
        path = self._path(cid)
        try:
            return verify_block(cid, path.read_bytes())
        except FileNotFoundError:
            raise BlockNotFound(f"could not find block {cid} in this store") from None
        except ContentError:
            log.warning("block %s was damaged on disk; removed", cid)
            path.unlink(missing_ok=True)
            raise BlockNotFound(f"could not find block {cid}: it was damaged on disk") from None

    def put(self, cid: Cid, data: bytes) -> None:
        """Store one block; storing it again changes nothing.

        Raises:
            BlockMismatch, ContentTooLarge: if ``data`` is not that block.
            OSError: if the disk refuses.
        """
        self._write(cid, verify_block(cid, data))

    def _write(self, cid: Cid, data: bytes, *, force: bool = False) -> bool:
        """Store one verified block, on disk if ``force`` is set; returns whether it was not there."""
        path = self._path(cid)
        if path.is_file():
            return False
        path.parent.mkdir(exist_ok=True)
        unfinished = self._partial / uuid.uuid4().hex
        try:
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                written = 0
                while written < len(data):
                    written += os.write(handle, memoryview(data)[written:])
                if force:
                    os.fdatasync(handle)
            finally:
                os.close(handle)
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return True

    def writer(self) -> "FileWriter":
        """Stores a file that arrives in pieces, on disk: one that is written whole is there to stay."""
        return FileWriter(partial(self._write, force=True))

    def add(self, data: bytes) -> Cid:
        """Store and pin a file; returns its CID. Raises OSError if the disk refuses."""
        writer = self.writer()
        writer.write(data)
        link, written = writer.finish()
        self.pin(link.cid, written)
        return link.cid

    def read(self, root: Cid, *, max_bytes: int) -> Iterator[bytes]:
        """A file piece by piece, each piece verified; raises as :func:`zoo_protocol.unixfs.read` and :meth:`get`."""
        ahead: deque[tuple[unixfs.Leaf, Future[bytes]]] = deque()

        def first() -> bytes:
            leaf, block = ahead.popleft()
            unixfs.check_size(leaf, block.result(), max_bytes=max_bytes)
            return block.result()

        with ThreadPoolExecutor(_THREADS) as pool:  # reading and hashing leave the interpreter's lock
            for leaf in unixfs.leaves(root, self.get, max_bytes=max_bytes):
                ahead.append((leaf, pool.submit(self.get, leaf.cid)))
                if len(ahead) == unixfs.MAX_AHEAD:
                    yield first()
            while ahead:
                yield first()

    def pin(self, root: Cid, written: Collection[Cid] = ()) -> int:
        """Record that the file under ``root`` must be kept; returns its size in bytes.

        Args:
            written: blocks that a :meth:`writer` has just stored: neither read back nor forced to disk again.

        Raises:
            BlockNotFound: if a block of it is missing.
            ContentError: if it is no file.
        """

        def keep(cid: Cid) -> Path:
            path = self._path(cid)
            if cid not in written:
                self.get(cid)
                _force_to_disk(path)
            return path.parent

        with ThreadPoolExecutor(_THREADS) as pool:  # a disk takes many such requests at once
            folders = set(pool.map(keep, unixfs.cids(root, self.get)))
            for _ in pool.map(_force_to_disk, [*folders, self._blocks]):
                pass
        (self._pins / str(root)).touch()
        _force_to_disk(self._pins)
        return unixfs.file_size(root, self.get)

    def unpin(self, root: Cid) -> bool:
        """Forget a pin; returns whether there was one. Its blocks stay until they are collected."""
        with contextlib.suppress(FileNotFoundError):
            (self._pins / str(root)).unlink()
            return True
        return False

    def is_pinned(self, root: Cid) -> bool:
        """Whether ``root`` itself is pinned."""
        return (self._pins / str(root)).is_file()

    def pins(self) -> Iterator[Cid]:
        """All pinned roots."""
        for name in os.listdir(self._pins):
            with contextlib.suppress(InvalidCid):  # a stray file is not a pin
                yield parse(name)

    def collect(self, *, older_than: float = 0.0) -> int:
        """Remove every block that no pin needs and that was stored more than ``older_than`` seconds ago.

        Returns how many; not while others write to the directory.

        Raises:
            BlockNotFound, ContentError: a pin's inner node is missing or damaged. Nothing is removed.
        """
        kept: set[str] = set()
        for root in self.pins():
            kept.update(str(cid) for cid in unixfs.cids(root, self.get))
        latest = time.time() - older_than
        paths = [path for path in self._blocks.glob("*/*") if path.name not in kept and path.stat().st_mtime <= latest]
        for path in paths:
            path.unlink()
        return len(paths)


class FileWriter:
    """A file being stored: each block is hashed once and written once, when it is full."""

    def __init__(self, write: Callable[[Cid, bytes], bool]) -> None:
        self._write = write
        self._written: set[Cid] = set()
        self._pool = ThreadPoolExecutor(_THREADS)
        self._builder = unixfs.FileBuilder(self._put, executor=self._pool)
        self.write = self._builder.write

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._builder.size

    def _put(self, cid: Cid, block: bytes) -> None:
        if self._write(cid, block):
            self._written.add(cid)

    def finish(self) -> tuple[unixfs.Link, set[Cid]]:
        """Close the file: the link to its root, and the blocks that were not there before."""
        with self._pool:
            return self._builder.finish(), self._written


def _force_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
