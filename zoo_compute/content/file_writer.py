"""How a file comes into a block store: into a pack of its own, which counts from one moment to the next, as a whole."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from zoo_compute.content.packs import Index, Pack, remove_unused
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import DAG_PB, Buffer, Cid

_FORCED_BYTES = 32 << 20
"""The disk gets to work each time that so much was written: forced all at once at the end, it would be waited for."""


class FileWriter:
    """A file being stored in a pack of its own: each block is hashed once and written once, when it is full.

    What is written must not change until :meth:`finish` has returned. End it by :meth:`commit` or :meth:`discard`.
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
        """Bytes so far."""
        return self._builder.size

    def finish(self) -> unixfs.Link:
        """Close the file; returns the link to its root. It is not in the store yet."""
        link = self._builder.finish()
        for node in self._nodes:
            self._pack.append(*node)
        self._root = link.cid
        return link

    def _put(self, cid: Cid, block: Buffer) -> None:
        if cid.codec == DAG_PB:
            self._nodes.append((cid, block))  # they follow the leaves, which so lie as they do in the file
            return
        if cid in self._pack.places:  # a file may hold equal chunks
            return
        forced = self._pack.size // _FORCED_BYTES
        self._pack.append(cid, block)
        if self._pack.size // _FORCED_BYTES > forced and (self._forcing is None or self._forcing.done()):
            self._forcing = self._pool.submit(self._pack.force_content)

    def commit(self, *, pin: bool) -> None:
        """Force the finished file to disk, and have it in the store. What it replaces is removed where nothing is left.

        Blocks that were in the store before count from here on as well: if they were damaged there, they are whole now.
        """
        assert self._root is not None, "finish it first"
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
        """Write no more, and leave nothing of what was not committed. Doing so again changes nothing."""
        if self._forcing is not None:
            wait([self._forcing])
        self._pack.close()
        remove_unused(self._pack.path, self._index)
