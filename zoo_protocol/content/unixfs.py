"""Files as DAGs of blocks, bit for bit as ``ipfs add --cid-version=1 --raw-leaves`` builds them.

A file is cut into chunks of 262,144 bytes, each a raw block. One chunk is the file; more are gathered under
dag-pb nodes of up to 174 links, all leaves at one depth (https://specs.ipfs.tech/unixfs/). Reading accepts any
chunking and width, but only raw leaves, and verifies every block against its CID. Directories, inline data and
other UnixFS features are refused: nothing here writes them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, TypeVar

from zoo_protocol.content import varint
from zoo_protocol.content.cid import DAG_PB, RAW, Buffer, Cid, ContentTooLarge, InvalidBlock, of_block, verify_block

CHUNK_BYTES = 262_144


MAX_LINKS = 174


PIECE_BYTES = 16 * CHUNK_BYTES
"""Large files are uploaded in pieces of so many bytes; a piece is a file of its own until they are joined."""


MAX_AHEAD = 32  # chunks that wait for an executor


MAX_DEPTH = 32  # Kubo's own trees reach 5 at 1 PiB


MAX_BLOCKS = 1 << 20  # blocks one read may visit: 256 GiB at the usual chunk size


_FEW_BLOCKS, _LEAST_BLOCK_BYTES = 4096, 512
"""A read visits few blocks, and one more for so many bytes of the file. Nobody cuts files finer, but a node may name
one child often: a DAG of kilobytes could otherwise have its reader ask a million times for a block of one byte."""


GetBlock = Callable[[Cid], bytes]
"""Finds a block's bytes. Readers here verify them, so it may ask anybody."""


PutBlock = Callable[[Cid, Buffer], object]
"""Takes a block, which may be a view of the file: what is kept for longer has to be copied."""


_Value = TypeVar("_Value", int, bytes)


@dataclass(frozen=True, slots=True)
class Link:
    """A child: its CID, how many file bytes lie under it, and how many bytes its whole DAG takes (Tsize)."""

    cid: Cid
    size: int
    dag_bytes: int


@dataclass(frozen=True)
class FileNode:
    """An inner node of a file: its children in order."""

    links: tuple[Link, ...]

    @cached_property
    def size(self) -> int:
        """File bytes under this node."""
        return sum(link.size for link in self.links)

    def encode(self) -> bytes:
        """The dag-pb block: links first, then the UnixFS message with type File, the size and the sizes below."""
        block = bytearray()
        for link in self.links:
            message = _field(1, link.cid.to_bytes()) + _field(2, b"") + _field(3, link.dag_bytes)
            block += _field(2, message)
        unixfs = _field(1, 2) + _field(3, self.size) + b"".join(_field(4, link.size) for link in self.links)
        return bytes(block + _field(1, unixfs))


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint.encode(number << 3) + varint.encode(value)
    return varint.encode(number << 3 | 2) + varint.encode(len(value)) + value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    offset = 0
    while offset < len(message):
        key, offset = varint.decode(message, offset)
        value: int | bytes
        value, offset = varint.decode(message, offset)
        if key & 7 == 2:
            start, offset = offset, offset + value
            value = message[start:offset]
        elif key & 7 != 0:
            raise ValueError(f"wire type {key & 7} is not used in file nodes")
        yield key >> 3, value


def _values(message: bytes, number: int, kind: type[_Value]) -> list[_Value]:
    return [value for field, value in _fields(message) if field == number and isinstance(value, kind)]


def decode_node(block: bytes) -> FileNode:
    """The inner file node that a dag-pb block holds.

    Only the canonical encoding of a file node passes: what was read is encoded again and compared, so unknown
    fields, other orders, longer integers and wrong totals are all refused.

    Raises:
        InvalidBlock: if it is anything else.
    """
    try:
        [unixfs] = _values(block, 1, bytes)
        sizes = _values(unixfs, 4, int)
        links = [
            Link(Cid.from_bytes(_values(message, 1, bytes)[0]), size, _values(message, 3, int)[0])
            for message, size in zip(_values(block, 2, bytes), sizes, strict=True)
        ]
    except (ValueError, IndexError) as error:
        raise InvalidBlock("not a file node with raw leaves but a directory, say") from error
    node = FileNode(tuple(links))
    if not links or 0 in sizes or node.encode() != block:
        raise InvalidBlock("not the canonical encoding of a file node with raw leaves")
    return node


class FileBuilder:
    """Builds a file's DAG from bytes that arrive in pieces of any length; each block goes to ``put`` once it is full.

    Memory stays below one chunk plus one node's links per level. With an ``executor``, its threads hash the chunks, and
    up to ``MAX_AHEAD`` more of them are held; what was written must then not change before :meth:`finish` has
    returned. ``put`` gets the leaves in their order, in the thread that writes.
    """

    def __init__(
        self,
        put: PutBlock,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        max_links: int = MAX_LINKS,
        executor: Executor | None = None,
    ) -> None:
        self._put = put
        self._executor = executor
        self._ahead: deque[tuple[Buffer, Future[Cid]]] = deque()
        self._chunk_bytes = chunk_bytes
        self._max_links = max_links
        self._pending = bytearray()
        self._levels: list[list[Link]] = [[]]
        self.size = 0

    def write(self, data: Buffer) -> None:
        """Append file bytes."""
        view, start = memoryview(data), 0
        self.size += len(view)
        if self._pending:
            start = min(self._chunk_bytes - len(self._pending), len(view))
            self._pending += view[:start]
            if len(self._pending) < self._chunk_bytes:
                return
            self._add_leaf(self._pending)
            self._pending = bytearray()
        while len(view) - start >= self._chunk_bytes:  # whole chunks are views of the input
            self._add_leaf(view[start : start + self._chunk_bytes])
            start += self._chunk_bytes
        self._pending += view[start:]

    def append_leaf(self, leaf: Link) -> None:
        """Append a whole chunk that is stored already; nothing that was written may be waiting to fill one."""
        if self._pending or leaf.size != leaf.dag_bytes:
            raise ValueError("only a whole chunk can follow whole chunks")
        self.size += leaf.size
        self._add_link(0, leaf)

    def finish(self) -> Link:
        """Close the file and return the link to its root. An empty file is one empty raw block."""
        if self._pending or self.size == 0:
            self._add_leaf(self._pending)
        while self._ahead:
            self._put_first()
        level = 0
        while len(self._levels) > level + 1 or len(self._levels[level]) > 1:
            if self._levels[level]:
                self._close_node(level)
            level += 1
        return self._levels[level][0]

    def _add_leaf(self, data: Buffer) -> None:
        if self._executor is None:
            self._put_leaf(data, of_block(RAW, data))
            return
        self._ahead.append((data, self._executor.submit(of_block, RAW, data)))
        if len(self._ahead) == MAX_AHEAD:
            self._put_first()

    def _put_first(self) -> None:
        data, hashed = self._ahead.popleft()
        self._put_leaf(data, hashed.result())

    def _put_leaf(self, data: Buffer, cid: Cid) -> None:
        self._put(cid, data)
        self._add_link(0, Link(cid, len(data), len(data)))

    def _add_link(self, level: int, link: Link) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(link)
        if len(self._levels[level]) == self._max_links:
            self._close_node(level)

    def _close_node(self, level: int) -> None:
        links, self._levels[level] = self._levels[level], []
        node = FileNode(tuple(links))
        block = node.encode()
        cid = of_block(DAG_PB, block)
        self._put(cid, block)
        self._add_link(level + 1, Link(cid, node.size, len(block) + sum(link.dag_bytes for link in links)))


def build(data: Buffer | BinaryIO, put: PutBlock, *, chunk_bytes: int = CHUNK_BYTES, max_links: int = MAX_LINKS) -> Cid:
    """Build the DAG of ``data`` (bytes, or a stream read to its end) and return the root CID."""
    builder = FileBuilder(put, chunk_bytes=chunk_bytes, max_links=max_links)
    if isinstance(data, Buffer):
        builder.write(data)
    else:
        while piece := data.read(CHUNK_BYTES):
            builder.write(piece)
    return builder.finish().cid


def cid_of_file(data: Buffer | BinaryIO) -> str:
    """The CID text that ``ipfs add --cid-version=1 --raw-leaves`` prints for ``data``."""
    return str(build(data, lambda _cid, _block: None))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A raw block of a file. ``size`` is None when the file is this one block: nothing above it states a size."""

    cid: Cid
    offset: int
    size: int | None


def leaves(root: Cid, get: GetBlock, *, max_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[Leaf]:
    """The leaves that hold bytes ``start`` to ``stop`` of a file, in order; only inner nodes are fetched.

    Raises:
        BlockMismatch, InvalidBlock, ContentTooLarge: see :func:`read`.
    """
    visited, most = 0, 1
    stack: list[tuple[Leaf, int]] = [(Leaf(root, 0, None), 0)]
    while stack:
        entry, depth = stack.pop()
        visited += 1
        if visited > most or depth > MAX_DEPTH:
            raise ContentTooLarge(f"{root} has more than {most} blocks, too many for its size, or {MAX_DEPTH} levels")
        if entry.cid.codec == RAW:
            yield entry
            continue
        node = decode_node(verify_block(entry.cid, get(entry.cid)))
        if entry.size not in (None, node.size):
            raise InvalidBlock(f"{entry.cid} holds {node.size} bytes where its parent says {entry.size}")
        if node.size > max_bytes:
            raise ContentTooLarge(f"{root} holds {node.size} bytes; the limit is {max_bytes}")
        if depth == 0:
            most = min(MAX_BLOCKS, _FEW_BLOCKS + node.size // _LEAST_BLOCK_BYTES)
        wanted = []
        offset = entry.offset
        for link in node.links:
            if offset + link.size > start and (stop is None or offset < stop):
                wanted.append((Leaf(link.cid, offset, link.size), depth + 1))
            offset += link.size
        stack.extend(reversed(wanted))


def read_leaf(leaf: Leaf, get: GetBlock, *, max_bytes: int, verify: bool = True) -> bytes:
    """The verified bytes of one leaf. ``verify`` may be off only where ``get`` itself verifies.

    Raises:
        BlockMismatch, InvalidBlock, ContentTooLarge: see :func:`read`.
    """
    data = verify_block(leaf.cid, get(leaf.cid)) if verify else get(leaf.cid)
    check_size(leaf, len(data), max_bytes=max_bytes)
    return data


def check_size(leaf: Leaf, size: int, *, max_bytes: int) -> None:
    """Check how many bytes a leaf turned out to have.

    Raises:
        InvalidBlock, ContentTooLarge: see :func:`read`.
    """
    if leaf.size not in (None, size):
        raise InvalidBlock(f"{leaf.cid} holds {size} bytes where its parent says {leaf.size}")
    if size > max_bytes:
        raise ContentTooLarge(f"{leaf.cid} holds {size} bytes; the limit is {max_bytes}")


def read(root: Cid, get: GetBlock, *, max_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Bytes ``start`` to ``stop`` of a file, block by block, each verified before it is yielded.

    Args:
        get: returns a block's bytes; whatever it raises passes through.
        max_bytes: limit on the whole file, not on the part that is read.

    Raises:
        BlockMismatch: a block's bytes are not what its CID says.
        InvalidBlock: a block is no part of a file, or sizes contradict each other.
        ContentTooLarge: the file exceeds ``max_bytes``, or a block or the tree exceeds the fixed limits.
    """
    for leaf in leaves(root, get, max_bytes=max_bytes, start=start, stop=stop):
        data = read_leaf(leaf, get, max_bytes=max_bytes)
        yield data[max(0, start - leaf.offset) : None if stop is None else max(0, stop - leaf.offset)]


def read_ahead(root: Cid, get: GetBlock, executor: Executor, *, max_bytes: int) -> Iterator[bytes]:
    """A whole file, block by block; threads of ``executor`` get and verify up to ``MAX_AHEAD`` of them at once.

    Raises as :func:`read`.
    """
    ahead: deque[Future[bytes]] = deque()
    try:
        for leaf in leaves(root, get, max_bytes=max_bytes):
            ahead.append(executor.submit(read_leaf, leaf, get, max_bytes=max_bytes))
            if len(ahead) == MAX_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


def leaf_links(root: Cid, size: int, get: GetBlock) -> list[Link]:
    """The chunks of a file of ``size`` bytes that has at most one node above them, such as a piece; reads that node.

    Raises:
        BlockMismatch, InvalidBlock: see :func:`read`; also if the file is larger, or of another size.
    """
    links = [Link(root, size, size)]
    if root.codec != RAW:
        links = list(decode_node(verify_block(root, get(root))).links)
    if sum(link.size for link in links) != size or any(link.cid.codec != RAW for link in links):
        raise InvalidBlock(f"{root} is no file of {size} bytes in one node")
    return links


def file_size(root: Cid, get: GetBlock) -> int:
    """Bytes in the file; fetches the root block only.

    Raises:
        BlockMismatch, InvalidBlock: see :func:`read`.
    """
    block = verify_block(root, get(root))
    return len(block) if root.codec == RAW else decode_node(block).size


def cids(root: Cid, get: GetBlock) -> Iterator[Cid]:
    """The CID of every block of a file, each once, depth first: the order in which a CAR file carries them.

    Only inner nodes are fetched, after they are yielded.

    Raises:
        BlockMismatch, InvalidBlock, ContentTooLarge: see :func:`read`.
    """
    seen: set[Cid] = set()
    stack = [root]
    while stack:
        cid = stack.pop()
        if cid in seen:
            continue
        seen.add(cid)
        if len(seen) > MAX_BLOCKS:
            raise ContentTooLarge(f"{root} has more than {MAX_BLOCKS} blocks")
        yield cid
        if cid.codec == DAG_PB:
            node = decode_node(verify_block(cid, get(cid)))
            stack.extend(link.cid for link in reversed(node.links))
