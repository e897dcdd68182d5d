"""Content-addressed storage over Kubo's RPC.

The IPFS node is not trusted: the client recomputes the CIDs of stored content and verifies every block that it reads.
ipfshttpclient is unmaintained, so only ``Client`` and a few of its calls are used.
"""

import io
import ipaddress
import os
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import ipfshttpclient
import requests
import stamina
from ipfshttpclient import exceptions as ipfs

from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge, StorageError, StorageUnavailable
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import RAW, Buffer, Cid, ContentError, ContentTooLarge, of_block, parse

os.environ.setdefault("PY_IPFS_HTTP_CLIENT_PATCH_REQUESTS", "no")  # the patch breaks with newer urllib3


MAX_BLOCK_BYTES = 1024 * 1024  # Kubo's limit for block/put
_PIECE_BYTES = unixfs.CHUNK_BYTES
_THREADS = 4
_VERIFIED_SECONDS = 60.0
_MAX_VERIFIED = 10_000
_SMALL_FILE_BYTES = 32 * 1024 * 1024  # above this, parallel requests are faster
_PINNED_BYTES_PER_SECOND = 10_000_000  # lower bound
_ABSENT = ("could not find", "not found", "context deadline exceeded", "request timed out")  # IPFS has no error codes
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Stored content: its CID and its size in bytes."""

    cid: str
    size: int

    def owned_cid(self, owner: str) -> str:
        """Return the CID of the owner's node above the file (:meth:`Storage.put_owned`)."""
        return str(self.owned(owner)[-1][0])

    def owned(self, owner: str) -> list[tuple[Cid, bytes]]:
        """Return the blocks that an owner has above the file, the root last."""
        return unixfs.owned_file(owner.encode(), unixfs.Link(parse(self.cid), self.size, self.size))


class Storage:
    """Client of one IPFS node: stores, reads and pins. Safe for threads and after a fork.

    Args:
        api: address of the RPC, as a multiaddr (``/ip4/127.0.0.1/tcp/5001``) or URL (``http://127.0.0.1:5001``).
        timeout: seconds without an answer after which IPFS counts as unavailable.
        lookup_timeout: seconds of a block's search after which the content counts as absent.

    Raises:
        ValueError: if the address has neither form.
    """

    def __init__(self, api: str, *, timeout: float = 30.0, lookup_timeout: float = 5.0) -> None:
        self._address = _multiaddr(api)
        self._timeout = timeout
        self._lookup_timeout = lookup_timeout
        self._lookup = _within(lookup_timeout)
        self._local = threading.local()
        self._verified: dict[Hashable, float] = {}
        try:
            ipfshttpclient.Client(self._address)  # parses the address without a connection
        except ipfs.AddressError as error:
            raise ValueError(f"IPFS API address {api!r}: expected /ip4/HOST/tcp/PORT or http://HOST:PORT") from error

    def put(self, data: bytes | Sequence[Buffer] | BinaryIO, *, max_bytes: int, pin: bool = True) -> StoredBlob:
        """Store and pin a file, given whole or in chunks; retries, except for a stream.

        Raises:
            BlobTooLarge: ``data`` exceeds ``max_bytes``; nothing is pinned.
            BlobCorrupt: IPFS returned another CID.
            StorageUnavailable: IPFS failed.
        """
        if not isinstance(data, Sequence):
            with _rpc_errors():
                return self._add(iter(partial(data.read, _PIECE_BYTES), b""), max_bytes, pin)
        pieces = [data] if isinstance(data, bytes) else data
        if sum(map(len, pieces)) > max_bytes:
            raise _too_large(max_bytes)
        return self._retry(lambda: self._add(pieces, max_bytes, pin))

    def join(self, pieces: Sequence[tuple[str, int]]) -> StoredBlob:
        """Concatenate stored files to one file without a pin; only their inner nodes are read.

        Args:
            pieces: (CID, size in bytes) in order: ``unixfs.PIECE_BYTES`` each, the last one at most.

        Raises:
            InvalidCid, BlobNotFound, BlobCorrupt, StorageUnavailable: see :meth:`get`.
        """
        builder = unixfs.FileBuilder(self._put_verified)
        with _content_errors():
            for cid, size in pieces:
                for leaf in unixfs.leaf_links(parse(cid), size, self._block):
                    builder.append_leaf(leaf)
        return StoredBlob(str(builder.finish().cid), builder.size)

    def put_block(self, data: bytes) -> StoredBlob:
        """Store and pin ``data`` as one raw block; its CID contains the SHA2-256 of ``data``.

        Raises:
            BlobTooLarge: it exceeds one block (1 MiB).
            BlobCorrupt, StorageUnavailable: see :meth:`put`.
        """
        if len(data) > MAX_BLOCK_BYTES:
            raise _too_large(MAX_BLOCK_BYTES)
        return self._put_verified(of_block(RAW, data), data, pin=True)

    def put_owned(self, file: StoredBlob, owner: str) -> str:
        """Store a node above a file that only ``owner`` has, without a pin; return its CID.

        IPFS does not count pins. A pin of this node keeps the file, and ends without effect on the file's other pins.

        Raises:
            InvalidCid, BlobCorrupt, StorageUnavailable: see :meth:`put`.
        """
        for cid, block in file.owned(owner):
            self._put_verified(cid, block)
        return file.owned_cid(owner)

    def get(self, cid: str, *, max_bytes: int) -> bytes:
        """Return a whole file, verified.

        Raises:
            InvalidCid: ``cid`` is malformed.
            BlobNotFound: IPFS did not find it in time.
            BlobTooLarge: it exceeds ``max_bytes``; at most one block beyond that was read.
            BlobCorrupt: a block does not match its CID, or the content is not a file.
            StorageUnavailable: IPFS failed.
        """
        root = parse(cid)
        if root.codec != RAW:
            with _content_errors():
                whole = self._read_small(root, max_bytes)
            if whole is not None:
                return whole
        return b"".join(self.open_stream(cid, max_bytes=max_bytes))

    def open_stream(self, cid: str, *, max_bytes: int) -> Iterator[bytes]:
        """Yield a file in verified chunks; raises as :meth:`get`."""
        root = parse(cid)
        with _content_errors():
            if root.codec == RAW:
                yield from unixfs.read(root, self._block, max_bytes=max_bytes)
                return
            with ThreadPoolExecutor(_THREADS) as pool:  # one request per block, mostly latency
                yield from unixfs.read_ahead(root, self._block, pool, max_bytes=max_bytes)

    def get_range(self, cid: str, start: int, stop: int, *, max_bytes: int, until: float) -> bytes:
        """Return bytes ``start`` to ``stop`` of a file; reads only their blocks, verified.

        Args:
            max_bytes: limit on the whole file.
            until: ``monotonic`` time after which no block is requested; the content then counts as absent.

        Raises:
            InvalidCid, BlobNotFound, BlobTooLarge, BlobCorrupt, StorageUnavailable: see :meth:`get`.
        """

        def block(cid: Cid) -> bytes:
            if monotonic() >= until:
                raise BlobNotFound(f"IPFS did not find the blocks of {root} in time")
            return self._block(cid)

        root = parse(cid)
        with _content_errors():
            return b"".join(unixfs.read(root, block, max_bytes=max_bytes, start=start, stop=stop))

    def stat(self, cid: str) -> int:
        """Return the size of a file in bytes; reads at most one block. Raises as :meth:`get`."""
        root = parse(cid)
        if root.codec == RAW:
            return int(self._retry(lambda: self._client().block.stat(cid, opts=dict(self._lookup)))["Size"])
        with _content_errors():
            return unixfs.file_size(root, self._block)

    def pin(self, cid: str, *, size: int = 0) -> None:
        """Pin a file and all its blocks. Idempotent.

        Args:
            size: bytes of a large file; extends the timeout, because IPFS reads them all before it answers.

        Raises:
            InvalidCid, BlobNotFound, StorageUnavailable: see :meth:`get`.
        """
        parse(cid)
        reading = size / _PINNED_BYTES_PER_SECOND
        opts = _within(self._lookup_timeout + reading)  # of the whole command
        self._retry(lambda: self._client().pin.add(cid, opts=dict(opts), timeout=self._timeout + reading))

    def unpin(self, cid: str) -> None:
        """Unpin a file. Idempotent. Raises InvalidCid, StorageUnavailable."""
        parse(cid)
        with suppress(_NotPinned):
            self._retry(lambda: self._client().pin.rm(cid))

    def is_pinned(self, cid: str) -> bool:
        """Return True if the file itself is pinned. Raises InvalidCid, StorageUnavailable."""
        parse(cid)
        try:
            self._retry(lambda: self._client().pin.ls(cid, type="recursive"))
        except _NotPinned:
            return False
        return True

    def healthy(self) -> bool:
        """Return True if IPFS answers within two seconds."""
        try:
            with _rpc_errors():
                self._client().version(timeout=2.0)
        except StorageError:
            return False
        return True

    def accepts_writes(self) -> bool:
        """Return True if IPFS stores 32 random bytes; a full disk makes it fail."""
        try:
            self.put(secrets.token_bytes(32), max_bytes=32, pin=False)
        except StorageError:
            return False
        return True

    def once_a_minute(self, what: Hashable, verify: Callable[[], object]) -> None:
        """Call ``verify`` unless it passed for ``what`` within a minute; a race repeats it."""
        at = self._verified.get(what)
        if at is not None and monotonic() - at < _VERIFIED_SECONDS:
            return
        verify()
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[what] = monotonic()

    def _client(self) -> Any:
        """Return this thread's client; a fork must not share its parent's connections."""
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.pid = os.getpid()
            self._local.client = ipfshttpclient.Client(
                self._address, session=True, timeout=(5.0, self._timeout), chunk_size=_PIECE_BYTES
            )
        return self._local.client

    def _put_verified(self, cid: Cid, block: Buffer, pin: bool = False) -> StoredBlob:
        codec = "raw" if cid.codec == RAW else "dag-pb"
        opts = {"cid-codec": codec, "mhtype": "sha2-256", "cid-base": "base32", "pin": str(pin).lower()}
        answer = self._retry(lambda: self._client().block.put(io.BytesIO(block), opts=dict(opts)))
        return _checked(answer["Key"], cid, len(block))

    def _add(self, pieces: Iterable[Buffer], max_bytes: int, pin: bool) -> StoredBlob:
        builder = unixfs.FileBuilder(lambda _cid, _block: None)

        def sent() -> Iterator[memoryview]:
            for piece in pieces:
                for start in range(0, len(piece), _PIECE_BYTES):
                    part = memoryview(piece)[start : start + _PIECE_BYTES]
                    builder.write(part)
                    if builder.size > max_bytes:
                        raise _too_large(max_bytes)
                    yield part

        opts = {"cid-version": "1", "raw-leaves": "true", "cid-base": "base32", "pin": str(pin).lower()}
        cid = self._client().add_bytes(sent(), opts=opts)
        return _checked(cid, builder.finish().cid, builder.size)

    def _block(self, cid: Cid) -> bytes:
        data: bytes = self._retry(lambda: self._client().block.get(str(cid), opts=dict(self._lookup)))
        return data

    def _read_small(self, root: Cid, max_bytes: int) -> bytes | None:
        """Return a small file by one request, which is faster; None if that fails."""
        # The verification rebuilds the file's blocks, so it fails for an unusual chunking too. The caller then reads
        # the file block by block, which finds the error.
        if max_bytes > _SMALL_FILE_BYTES:
            max_bytes = unixfs.file_size(root, self._block)
        if max_bytes > _SMALL_FILE_BYTES:
            return None
        with suppress(StorageError), _rpc_errors():
            data: bytes = self._client().cat(str(root), opts={"length": max_bytes, **self._lookup})
            if len(data) <= max_bytes and unixfs.cid_of_file(data) == str(root):
                return data
        return None

    def _retry(self, call: Callable[[], Result]) -> Result:
        for attempt in stamina.retry_context(
            on=_is_transient, attempts=3, timeout=None, wait_initial=0.1, wait_max=1.0, wait_jitter=0.1
        ):
            with attempt, _rpc_errors():
                return call()
        raise AssertionError("the last attempt returns or raises")


class _NotPinned(StorageError):
    """IPFS has no such pin."""


def _is_transient(error: Exception) -> bool:
    """Return True if an immediate retry may help: neither a refusal nor a timeout."""
    return isinstance(error, StorageUnavailable) and not isinstance(
        error.__cause__, ipfs.ErrorResponse | ipfs.TimeoutError
    )


def _multiaddr(api: str) -> str:
    """Return the multiaddr of an RPC address given as URL; other values are returned unchanged."""
    url = urlsplit(api)
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/"):
        return api
    try:
        family = f"ip{ipaddress.ip_address(url.hostname).version}"
    except ValueError:
        family = "dns"
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"/{family}/{url.hostname}/tcp/{port}/{url.scheme}"


def _within(seconds: float) -> dict[str, str]:
    return {"timeout": f"{int(seconds * 1000)}ms"}


def _too_large(max_bytes: int) -> BlobTooLarge:
    return BlobTooLarge(f"the content exceeds the limit of {max_bytes} bytes")


def _checked(given: str, expected: Cid, size: int) -> StoredBlob:
    if given != str(expected):
        raise BlobCorrupt(f"IPFS returned CID {given}; expected {expected}")
    return StoredBlob(given, size)


@contextmanager
def _rpc_errors() -> Iterator[None]:
    try:
        yield
    except ipfs.ErrorResponse as error:
        text = str(error)
        if "not pinned" in text:
            raise _NotPinned(text) from error
        if any(sign in text for sign in _ABSENT):
            raise BlobNotFound(f"IPFS does not have the content: {text}") from error
        raise StorageUnavailable(f"IPFS refused: {text}") from error
    except (ipfs.CommunicationError, requests.RequestException) as error:
        raise StorageUnavailable(f"IPFS does not answer: {error}") from error


@contextmanager
def _content_errors() -> Iterator[None]:
    try:
        yield
    except ContentTooLarge as error:
        raise BlobTooLarge(str(error)) from error
    except ContentError as error:
        raise BlobCorrupt(str(error)) from error
