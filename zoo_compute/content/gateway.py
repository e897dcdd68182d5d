"""Reading content from IPFS trustless gateways, which need not be trusted: every block is verified.

Of one gateway, a file of which nothing is here yet is streamed as one CAR archive; what that stream fails to deliver,
and what is lacking of a file that is partly here, is asked for block by block, several at once. So is all of a file
where there are several gateways, each asked for other blocks (:mod:`zoo_compute.content.transfer`).
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import httpx
import stamina

from zoo_compute.base.errors import ConfigError
from zoo_compute.base.link import Link
from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.peers import FAILURES, Fault, Peers, Stalled
from zoo_compute.content.transfer import Transfer
from zoo_protocol.content import car, unixfs
from zoo_protocol.content.cid import DAG_PB, MAX_BLOCK_BYTES, BlockMismatch, Cid, ContentError, parse, verify_block
from zoo_protocol.content.unixfs import Leaf

log = logging.getLogger(__name__)


RAW_TYPE = "application/vnd.ipld.raw"


CAR_TYPE = "application/vnd.ipld.car"


class GatewayUnavailable(Exception):
    """No gateway gave a usable answer; trying later may help."""

    code = "gateway_unavailable"


class GatewayClient:
    """Fetches content by CID. Safe for threads; close it, or use it as a context manager.

    Args:
        gateways: base URLs such as ``http://127.0.0.1:8080``: all are asked at once for a file's blocks, and in this
            order for a single one.
        store: keeps every block that was fetched, and is asked first.
        attempts: how often all gateways are asked before giving up, with growing pauses between.
        timeout: seconds without any byte before a gateway counts as failed.
        block_timeout: seconds that one block may take.
        link: what all traffic goes over; None neither measures nor limits it.

    Raises:
        ConfigError: a gateway is no URL.
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
        # Answers are read as they come: a compressed one could unfold to any size before it is verified.
        hooks = link.hooks() if link else {}
        self._http = httpx.Client(timeout=timeout, headers={"Accept-Encoding": "identity"}, event_hooks=hooks)

    def __enter__(self) -> "GatewayClient":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @property
    def faults(self) -> list[Fault]:
        """What gateways did wrong, oldest first: the last few hundred of it."""
        return self._peers.faults

    def block(self, cid: str) -> bytes:
        """One verified block.

        Raises:
            InvalidCid: the text is no CID.
            BlockNotFound: every gateway says that it has no such block.
            BlockMismatch: a gateway answered with something else, and no other had the block.
            GatewayUnavailable: no gateway could be asked, after all attempts.
        """
        return self._block(parse(cid))

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        """A whole file in memory.

        Raises:
            ContentTooLarge: it exceeds ``max_bytes``.
            InvalidBlock: the CID names something that is no file.
            InvalidCid, BlockNotFound, BlockMismatch, GatewayUnavailable: see :meth:`block`.
        """
        return b"".join(self.stream(cid, max_bytes=max_bytes))

    def stream(self, cid: str, *, max_bytes: int) -> Iterator[bytes]:
        """A file piece by piece, each piece verified; raises as :meth:`fetch`."""
        for _leaf, block in self._leaves(parse(cid), _nothing, max_bytes=max_bytes, resumed=False):
            yield block

    def download(self, cid: str, path: Path, *, max_bytes: int) -> int:
        """Write a file to ``path`` and return its size in bytes; raises as :meth:`fetch`.

        ``path`` appears only when complete. An interrupted download leaves ``path`` + ``.part``, from which the next
        call keeps all blocks that verify. Of several that write to the same path, one does at a time.
        """
        partial = path.with_name(path.name + ".part")
        with _opened_alone(partial) as file:
            size, resumed, kept = 0, os.fstat(file.fileno()).st_size > 0, set[int]()

            def have(leaf: Leaf) -> bytes | None:
                block = _already_there(file, leaf) if resumed else None
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
            partial.replace(path)  # while others still wait: what they open then is another file
        return size

    def pin(self, cid: str, *, max_bytes: int) -> int:
        """Fetch a file into the store, pin it there and return its size in bytes; raises as :meth:`fetch`."""
        if self._store is None:
            raise ValueError("pinning needs a block store")
        for _piece in self.stream(cid, max_bytes=max_bytes):
            pass  # reading stores every block
        return self._store.pin(parse(cid))

    def _leaves(
        self, root: Cid, have: Callable[[Leaf], bytes | None], *, max_bytes: int, resumed: bool
    ) -> Iterator[tuple[Leaf, bytes]]:
        """The leaves of a file in order with their verified blocks; what ``have`` returns is not fetched."""
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
        """The leaves that a gateway streams, in order; returns from which byte on others are lacking, if any are."""
        reached = 0
        with contextlib.closing(_Archive(self._open_archive(root))) as archive:

            def get(cid: Cid) -> bytes:
                block = archive.get(cid)  # first, since it has to go on
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
        """The leaves from byte ``start`` on as :meth:`_leaves`, from all gateways at once, several blocks of each."""
        found = set[Cid]()  # in the store: not to be put there again

        def at_hand(leaf: Leaf) -> bytes | None:
            block = have(leaf)
            if block is None and (block := self._stored(leaf.cid)) is not None:
                found.add(leaf.cid)
            return block

        with Transfer(self._peers, self._ask, self._ask_all_with_retries) as transfer:

            def node(cid: Cid) -> bytes:
                block = self._stored(cid)
                return self._keep(cid, transfer.get(cid)) if block is None else block

            lacking = unixfs.leaves(root, node, max_bytes=max_bytes, start=start)
            for leaf, block in transfer.blocks(lacking, at_hand):
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
        for attempt in stamina.retry_context(
            on=GatewayUnavailable,
            attempts=self._attempts,
            timeout=None,
            wait_initial=0.1,
            wait_max=2.0,
            wait_jitter=0.1,
        ):
            with attempt:
                return self._ask_all(cid)
        raise AssertionError("the last attempt returns or raises")

    def _ask_all(self, cid: Cid) -> bytes:
        failures: list[Exception] = []
        for gateway in self._peers.in_order():
            try:
                return self._ask_one(gateway, cid)
            except FAILURES as error:
                self._peers.report(gateway, error)
                failures.append(error)
        for failure in failures:
            if isinstance(failure, httpx.HTTPError):
                raise GatewayUnavailable(f"no gateway gave {cid}; {type(failure).__name__}: {failure}") from failure
        raise next((failure for failure in failures if isinstance(failure, ContentError)), failures[0])

    def _ask_one(self, gateway: str, cid: Cid) -> bytes:
        block = self._ask(gateway, cid, lambda: False)
        assert block is not None  # it stays wanted
        return block

    def _ask(self, gateway: str, cid: Cid, useless: Callable[[], bool]) -> bytes | None:
        """A verified block, or None if it has become ``useless`` while it arrived; raises one of ``FAILURES``."""
        url, latest = f"{gateway}/ipfs/{cid}", time.monotonic() + self._block_timeout
        with self._http.stream("GET", url, params={"format": "raw"}, headers={"Accept": RAW_TYPE}) as response:
            if response.status_code in (404, 410):
                raise BlockNotFound(f"{gateway} could not find {cid}")
            response.raise_for_status()
            block = bytearray()
            for piece in response.iter_raw():
                block += piece
                if len(block) > MAX_BLOCK_BYTES:
                    raise BlockMismatch(f"{gateway} sends more for {cid} than any block may hold")
                if time.monotonic() > latest:
                    raise Stalled(f"{gateway} took more than {self._block_timeout} s for {cid}")
                if useless():
                    return None
        return verify_block(cid, bytes(block))

    def _open_archive(self, root: Cid) -> Generator[tuple[Cid, bytes], None, None]:
        """The verified blocks that the first gateway able to do so streams; ends early where it fails."""
        headers = {"Accept": f"{CAR_TYPE}; version=1; order=dfs; dups=n"}
        for gateway in self._peers.in_order():
            url = f"{gateway}/ipfs/{root}"
            try:
                with self._http.stream("GET", url, params={"format": "car"}, headers=headers) as response:
                    response.raise_for_status()
                    clock = _Clock(self._block_timeout, f"{gateway} took more than {self._block_timeout} s for a block")
                    for block in car.read(clock.watched(response.iter_raw()), root):
                        yield block
                        clock.start()
                    return
            except (httpx.HTTPStatusError, httpx.ConnectError, httpx.ConnectTimeout) as error:
                log.info("gateway %s: no archive of %s: %s", gateway, root, error)
            except (ContentError, httpx.HTTPError) as error:
                self._peers.report(gateway, error)
                return


class _NotInArchive(LookupError):
    """An archive does not go on with the block that its file goes on with."""


class _Clock:
    """Bounds the time that each block of an archive may take to arrive, what its reader does meanwhile left out."""

    def __init__(self, seconds: float, problem: str) -> None:
        self._seconds = seconds
        self._problem = problem
        self.start()

    def start(self) -> None:
        """The next block is waited for from now on."""
        self._latest = time.monotonic() + self._seconds

    def watched(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces as they come. Raises Stalled."""
        for piece in pieces:
            if time.monotonic() > self._latest:
                raise Stalled(self._problem)
            yield piece


class _Archive:
    """Blocks of an archive in its own order; knows the one before, since an archive carries each block once."""

    def __init__(self, blocks: Generator[tuple[Cid, bytes], None, None]) -> None:
        self._blocks = blocks
        self._current: tuple[Cid, bytes] | None = None
        self._next: tuple[Cid, bytes] | None = next(blocks, None)

    def get(self, cid: Cid) -> bytes | None:
        """The block, if it is the one at hand or the next; else None."""
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
            f"the gateway {gateway!r} is no http:// or https:// URL",
            remedy="Name gateways like https://ipfs.example.com or http://127.0.0.1:8080.",
        )


@contextlib.contextmanager
def _opened_alone(path: Path) -> Iterator[BinaryIO]:
    """The file at ``path``, made if need be, once nobody else has it open so."""
    while True:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                yield file
                return


def _is_at(path: Path, file: BinaryIO) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False  # whoever had it before has finished, and moved it


def _nothing(_leaf: Leaf) -> bytes | None:
    """Nothing is at hand."""
    return None


def _already_there(file: BinaryIO, leaf: Leaf) -> bytes | None:
    """This leaf's bytes, if the file holds them at their place."""
    if leaf.size is None or leaf.size > MAX_BLOCK_BYTES:
        return None
    file.seek(leaf.offset)
    block = file.read(leaf.size)
    return block if hashlib.sha256(block).digest() == leaf.cid.digest else None
