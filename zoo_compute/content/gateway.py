"""Client of IPFS trustless gateways; every block is verified.

With one gateway, a file that is completely missing is streamed as one CAR archive. Other missing blocks are requested
one by one, several at a time. With several gateways, each gets requests for other blocks
(:mod:`zoo_compute.content.transfer`).
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import httpx
import stamina

from zoo_compute.base.errors import ConfigError
from zoo_compute.base.link import Link
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.transfer import FAILURES, Fault, Peers, Stalled, Transfer
from zoo_protocol.content import car, unixfs
from zoo_protocol.content.cid import DAG_PB, MAX_BLOCK_BYTES, BlockMismatch, Cid, ContentError, parse, verify_block
from zoo_protocol.content.unixfs import Leaf

log = logging.getLogger(__name__)
RAW_TYPE = "application/vnd.ipld.raw"
CAR_TYPE = "application/vnd.ipld.car"


class GatewayUnavailable(Exception):
    """No gateway gave a usable answer; a later attempt can succeed."""

    code = "gateway_unavailable"


UNAVAILABLE = (BlockNotFound, ContentError, GatewayUnavailable)
"""Errors of content that is missing, damaged or not served now."""


class GatewayClient:
    """Content client. Safe for threads; close it, or use it as a context manager.

    Args:
        gateways: base URLs such as ``http://127.0.0.1:8080``; a file's blocks are requested from all, a single block in
            this order.
        store: cache of every fetched block.
        attempts: number of rounds over all gateways, with growing pauses.
        timeout: seconds without data before a gateway counts as failed.
        block_timeout: maximum seconds per block.
        link: measures and limits the traffic; None does neither.

    Raises:
        ConfigError: a gateway is not a URL.
    """

    def __init__(
        self,
        gateways: Sequence[str],
        *,
        store: BlockStore | None = None,
        attempts: int = 4,
        timeout: float = 10.0,
        block_timeout: float = 120.0,
        link: Link | None = None,
    ) -> None:
        if not gateways:
            raise ValueError("give at least one gateway URL")
        for gateway in gateways:
            _require_url(gateway)
        self._peers = Peers(gateways)
        self._store = store
        self._attempts = attempts
        self._block_timeout = block_timeout
        # Uncompressed answers only: a compressed one could expand to any size before verification.
        hooks = link.hooks() if link else {}
        self._http = httpx.Client(timeout=timeout, headers={"Accept-Encoding": "identity"}, event_hooks=hooks)

    def __enter__(self) -> "GatewayClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def faults(self) -> list[Fault]:
        """Return the last few hundred faults of gateways, oldest first."""
        return self._peers.faults

    def block(self, cid: str) -> bytes:
        """Return one verified block.

        Raises:
            InvalidCid: malformed CID.
            BlockNotFound: every gateway answers that it does not have the block.
            BlockMismatch: a gateway answered with other content, and no other had the block.
            GatewayUnavailable: all attempts failed.
        """
        return self._block(parse(cid))

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        """Return a whole file.

        Raises:
            ContentTooLarge: it exceeds ``max_bytes``.
            InvalidBlock: the CID is not that of a file.
            InvalidCid, BlockNotFound, BlockMismatch, GatewayUnavailable: see :meth:`block`.
        """
        return b"".join(self.stream(cid, max_bytes=max_bytes))

    def stream(self, cid: str, *, max_bytes: int) -> Iterator[bytes]:
        """Yield a file in verified chunks; raises as :meth:`fetch`."""
        for _leaf, block in self._leaves(parse(cid), lambda _leaf: None, max_bytes=max_bytes, resumed=False):
            yield block

    def download(self, cid: str, path: Path, *, max_bytes: int) -> int:
        """Write a file to ``path`` and return its size in bytes; raises as :meth:`fetch`.

        ``path`` appears only when complete. An interrupted download leaves ``path`` + ``.part``, and the next call
        keeps its valid blocks. Concurrent downloads to one path are serialised.
        """
        partial = path.with_name(path.name + ".part")
        with _opened_alone(partial) as file:
            size, resumed, kept = 0, os.fstat(file.fileno()).st_size > 0, set[int]()

            def have(leaf: Leaf) -> bytes | None:
                block = _leaf_in_place(file, leaf) if resumed else None
                if block is not None:
                    kept.add(leaf.offset)
                return block

            for leaf, block in self._leaves(parse(cid), have, max_bytes=max_bytes, resumed=resumed):
                if leaf.offset not in kept:
                    file.seek(leaf.offset)
                    file.write(block)
                size = leaf.offset + len(block)
            file.truncate(size)
            file.flush()
            partial.replace(path)  # under the lock: waiting downloads then open another file
        return size

    def _leaves(
        self, root: Cid, have: Callable[[Leaf], bytes | None], *, max_bytes: int, resumed: bool
    ) -> Iterator[tuple[Leaf, bytes]]:
        """Yield a file's leaves in order with verified blocks, not fetched if in ``have``."""
        if root.codec != DAG_PB:
            leaf = Leaf(root, 0, None)
            yield leaf, unixfs.read_leaf(leaf, self._block, max_bytes=max_bytes, verify=False)
            return
        partly_here = resumed or (self._store is not None and self._store.has(root))
        start: int | None = 0
        if len(self._peers.gateways) == 1 and not partly_here:
            start = yield from self._leaves_of_archive(root, max_bytes)
        if start is not None:
            yield from self._leaves_of_blocks(root, have, max_bytes, start)

    def _leaves_of_archive(self, root: Cid, max_bytes: int) -> Generator[tuple[Leaf, bytes], None, int | None]:
        """Yield leaves that a gateway streams; return the first missing byte, or None."""
        reached = 0
        with contextlib.closing(_Archive(self._open_archive(root))) as archive:

            def get(cid: Cid) -> bytes:
                block = archive.get(cid)  # first: the archive has to advance
                if block is not None:
                    return self._keep(cid, block)
                block = self._stored(cid)
                if block is None:
                    raise _NotInArchive
                return block

            try:
                for leaf in unixfs.leaves(root, get, max_bytes=max_bytes):
                    block = unixfs.read_leaf(leaf, get, max_bytes=max_bytes, verify=False)
                    yield leaf, block
                    reached = leaf.offset + len(block)
            except _NotInArchive:
                return reached
        return None

    def _leaves_of_blocks(
        self, root: Cid, have: Callable[[Leaf], bytes | None], max_bytes: int, start: int
    ) -> Iterator[tuple[Leaf, bytes]]:
        """Yield the leaves from ``start`` as :meth:`_leaves`, in parallel from all gateways."""
        found = set[Cid]()  # already in the store

        def local(leaf: Leaf) -> bytes | None:
            block = have(leaf)
            if block is None and (block := self._stored(leaf.cid)) is not None:
                found.add(leaf.cid)
            return block

        with Transfer(self._peers, self._ask, self._ask_all_with_retries) as transfer:

            def node(cid: Cid) -> bytes:
                block = self._stored(cid)
                return self._keep(cid, transfer.get(cid)) if block is None else block

            missing = unixfs.leaves(root, node, max_bytes=max_bytes, start=start)
            for leaf, block in transfer.blocks(missing, local):
                unixfs.check_size(leaf, len(block), max_bytes=max_bytes)
                yield leaf, block if leaf.cid in found else self._keep(leaf.cid, block)

    def _block(self, cid: Cid) -> bytes:
        block = self._stored(cid)
        return self._keep(cid, self._ask_all_with_retries(cid)) if block is None else block

    def _stored(self, cid: Cid) -> bytes | None:
        if self._store is not None:
            with contextlib.suppress(BlockNotFound):
                return self._store.get(cid)
        return None

    def _keep(self, cid: Cid, block: bytes) -> bytes:
        if self._store is not None:
            self._store.put(cid, block)
        return block

    def _ask_all_with_retries(self, cid: Cid) -> bytes:
        retried = stamina.RetryingCaller(self._attempts, timeout=None, wait_initial=0.1, wait_max=2.0, wait_jitter=0.1)
        return retried(GatewayUnavailable, self._ask_all, cid)

    def _ask_all(self, cid: Cid) -> bytes:
        failures: list[Exception] = []
        for gateway in self._peers.by_preference():
            try:
                block = self._ask(gateway, cid, lambda: False)
                assert block is not None  # never useless
                return block
            except FAILURES as error:
                self._peers.report(gateway, error)
                failures.append(error)
        for failure in failures:
            if isinstance(failure, httpx.HTTPError):
                raise GatewayUnavailable(f"no gateway gave {cid}; {type(failure).__name__}: {failure}") from failure
        raise next((failure for failure in failures if isinstance(failure, ContentError)), failures[0])

    def _ask(self, gateway: str, cid: Cid, useless: Callable[[], bool]) -> bytes | None:
        """Return a verified block, or None once ``useless``; raises ``FAILURES``."""
        url, latest = f"{gateway}/ipfs/{cid}", time.monotonic() + self._block_timeout
        with self._http.stream("GET", url, params={"format": "raw"}, headers={"Accept": RAW_TYPE}) as response:
            if response.status_code in (404, 410):
                raise BlockNotFound(f"{gateway} could not find {cid}")
            response.raise_for_status()
            block = bytearray()
            for piece in response.iter_raw():
                block += piece
                if len(block) > MAX_BLOCK_BYTES:
                    raise BlockMismatch(f"{gateway} sends more than {MAX_BLOCK_BYTES} bytes for {cid}")
                if time.monotonic() > latest:
                    raise Stalled(f"{gateway} took more than {self._block_timeout} s for {cid}")
                if useless():
                    return None
        return verify_block(cid, bytes(block))

    def _open_archive(self, root: Cid) -> Generator[tuple[Cid, bytes], None, None]:
        """Yield verified blocks of the first gateway that streams an archive."""
        headers = {"Accept": f"{CAR_TYPE}; version=1; order=dfs; dups=n"}
        latest = 0.0  # end of the next block's time, which does not include the reader's

        def timed(gateway: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                if time.monotonic() > latest:
                    raise Stalled(f"{gateway} took more than {self._block_timeout} s for a block")
                yield piece

        for gateway in self._peers.by_preference():
            url = f"{gateway}/ipfs/{root}"
            try:
                with self._http.stream("GET", url, params={"format": "car"}, headers=headers) as response:
                    response.raise_for_status()
                    latest = time.monotonic() + self._block_timeout
                    for block in car.read(timed(gateway, response.iter_raw()), root):
                        yield block
                        latest = time.monotonic() + self._block_timeout
                    return
            except (httpx.HTTPStatusError, httpx.ConnectError, httpx.ConnectTimeout) as error:
                log.info("no_archive gateway=%s cid=%s error=%s", gateway, root, error)
            except (ContentError, httpx.HTTPError) as error:
                self._peers.report(gateway, error)
                return


class _NotInArchive(LookupError):
    """The archive does not continue with the file's next block."""


class _Archive:
    """Blocks of an archive in its order; keeps the previous one for repeated leaves."""

    def __init__(self, blocks: Generator[tuple[Cid, bytes], None, None]) -> None:
        self._blocks = blocks
        self._current: tuple[Cid, bytes] | None = None
        self._next: tuple[Cid, bytes] | None = next(blocks, None)

    def get(self, cid: Cid) -> bytes | None:
        """Return the block if it is the current or the next one, else None."""
        if self._next is not None and self._next[0] == cid:
            self._current, self._next = self._next, next(self._blocks, None)
        return self._current[1] if self._current is not None and self._current[0] == cid else None

    def close(self) -> None:
        self._blocks.close()


def _require_url(gateway: str) -> None:
    try:
        url = httpx.URL(gateway)
        is_url = url.scheme in ("http", "https") and bool(url.host) and (url.port or 0) < 1 << 16
    except httpx.InvalidURL:
        is_url = False
    if not is_url:
        raise ConfigError(
            "gateway-malformed",
            f"gateway is {gateway!r}; expected an http:// or https:// URL",
            remedy="Give a URL like https://ipfs.example.com or http://127.0.0.1:8080.",
        )


@contextlib.contextmanager
def _opened_alone(path: Path) -> Iterator[BinaryIO]:
    """Open the file at ``path``, created if missing, under an exclusive lock."""
    while True:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                yield file
                return


def _is_at(path: Path, file: BinaryIO) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False  # the previous holder of the lock moved the file


def _leaf_in_place(file: BinaryIO, leaf: Leaf) -> bytes | None:
    if leaf.size is None or leaf.size > MAX_BLOCK_BYTES:
        return None
    file.seek(leaf.offset)
    block = file.read(leaf.size)
    return block if hashlib.sha256(block).digest() == leaf.cid.digest else None
