"""Atomic addition of a file to a block store, in a pack of its own."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

from zoo_compute.content.packs import Index, Pack, remove_unused
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import DAG_PB, Buffer, Cid

_FORCED_BYTES = 32 << 20
"""Bytes between two background flushes, so that the final flush is short."""


class FileWriter:
    """Writer of one file; each block is hashed once and written once.

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
