"""Files as DAGs of blocks, bit for bit as ``ipfs add --cid-version=1 --raw-leaves``.

A file is cut into chunks of 262,144 bytes, each a raw block. A file of one chunk is that block. Larger files have
dag-pb nodes of up to 174 links, with all leaves at one depth. The format is https://specs.ipfs.tech/unixfs/.

Reading accepts any chunking and width, but only raw leaves, and verifies every block against its CID. Directories,
inline data and other UnixFS features are refused.
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
"""Size of the pieces in which large files are uploaded; each piece is a file until they are merged."""
MAX_PIECE_BYTES = 128 * CHUNK_BYTES
"""Size of the pieces in which users upload large files; a piece has one inner node, so that it can be joined."""
MAX_AHEAD = 32  # chunks queued in an executor
MAX_DEPTH = 32  # Kubo's own trees reach 5 at 1 PiB
MAX_BLOCKS = 1 << 20  # blocks one read may visit: 256 GiB at the usual chunk size
_FEW_BLOCKS, _MIN_BLOCK_BYTES = 4096, 512
"""Limit of the blocks of a read: a constant, and one more per this many bytes of the file.

Real files have larger chunks. Without the limit, a DAG of kilobytes that names one child often could make a reader
fetch a block of one byte a million times.
"""
GetBlock = Callable[[Cid], bytes]
"""Fetches a block's bytes from any source; the readers here verify them."""
PutBlock = Callable[[Cid, Buffer], object]
"""Takes a block, which may be a view of the file and must be copied to be kept."""
_Value = TypeVar("_Value", int, bytes)


@dataclass(frozen=True, slots=True)
class Link:
    """A child: its CID, the file bytes under it, and the bytes of its whole DAG (Tsize)."""

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
        """Return the dag-pb block: links, then the UnixFS message of type File."""
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
    """Return the inner file node in a dag-pb block.

    Only the canonical encoding passes: the node is encoded again and compared. This refuses unknown fields, other
    orders, longer integers and wrong totals.

    Raises:
        InvalidBlock: the block is anything else.
    """
    try:
        [unixfs] = _values(block, 1, bytes)
        sizes = _values(unixfs, 4, int)
        links = [
            Link(Cid.from_bytes(_values(message, 1, bytes)[0]), size, _values(message, 3, int)[0])
            for message, size in zip(_values(block, 2, bytes), sizes, strict=True)
        ]
    except (ValueError, IndexError) as error:
        raise InvalidBlock("not a file node with raw leaves (for example a directory)") from error
    node = FileNode(tuple(links))
    if not links or 0 in sizes or node.encode() != block:
        raise InvalidBlock("not the canonical encoding of a file node with raw leaves")
    return node


class FileBuilder:
    """Builder of a file's DAG from pieces of any length; each full block goes to ``put``.

    Memory stays below one chunk plus one node's links per level. With an ``executor``, its threads hash the chunks and
    the builder keeps up to ``MAX_AHEAD`` more. Written data must then not change before :meth:`finish` returns.
    ``put`` receives the leaves in order, in the writing thread.
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
        """Append a whole chunk that is already stored; no written bytes may be pending."""
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


def owned_file(owner: bytes, file: Link) -> list[tuple[Cid, bytes]]:
    """Return the blocks of the file that is ``owner`` followed by ``file``: its new root last.

    The root is another for each owner, and a pin of it holds all blocks of the file.
    """
    name = of_block(RAW, owner)
    root = FileNode((Link(name, len(owner), len(owner)), file)).encode()
    return [(name, owner), (of_block(DAG_PB, root), root)]


def cid_of_file(data: Buffer | BinaryIO) -> str:
    """Return the CID text that ``ipfs add --cid-version=1 --raw-leaves`` prints for ``data``."""
    return str(build(data, lambda _cid, _block: None))


@dataclass(frozen=True, slots=True)
class Leaf:
    """Raw block of a file; ``size`` is None if the file is this one block."""

    cid: Cid
    offset: int
    size: int | None


def leaves(root: Cid, get: GetBlock, *, max_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[Leaf]:
    """Yield leaves with bytes ``start`` to ``stop``, inner nodes fetched; as :func:`read`."""
    visited, limit = 0, 1
    stack: list[tuple[Leaf, int]] = [(Leaf(root, 0, None), 0)]
    while stack:
        entry, depth = stack.pop()
        visited += 1
        if visited > limit or depth > MAX_DEPTH:
            raise ContentTooLarge(f"{root} has more than {limit} blocks, too many for its size, or {MAX_DEPTH} levels")
        if entry.cid.codec == RAW:
            yield entry
            continue
        node = decode_node(verify_block(entry.cid, get(entry.cid)))
        if entry.size not in (None, node.size):
            raise InvalidBlock(f"{entry.cid} has {node.size} bytes; its parent states {entry.size}")
        if node.size > max_bytes:
            raise ContentTooLarge(f"{root} has {node.size} bytes; the limit is {max_bytes}")
        if depth == 0:
            limit = min(MAX_BLOCKS, _FEW_BLOCKS + node.size // _MIN_BLOCK_BYTES)
        wanted = []
        offset = entry.offset
        for link in node.links:
            if offset + link.size > start and (stop is None or offset < stop):
                wanted.append((Leaf(link.cid, offset, link.size), depth + 1))
            offset += link.size
        stack.extend(reversed(wanted))


def read_leaf(leaf: Leaf, get: GetBlock, *, max_bytes: int, verify: bool = True) -> bytes:
    """Return a leaf's verified bytes (``verify`` off: ``get`` does). Raises as :func:`read`."""
    data = verify_block(leaf.cid, get(leaf.cid)) if verify else get(leaf.cid)
    check_size(leaf, len(data), max_bytes=max_bytes)
    return data


def check_size(leaf: Leaf, size: int, *, max_bytes: int) -> None:
    """Check the size of a leaf's block. Raises as :func:`read`."""
    if leaf.size not in (None, size):
        raise InvalidBlock(f"{leaf.cid} has {size} bytes; its parent states {leaf.size}")
    if size > max_bytes:
        raise ContentTooLarge(f"{leaf.cid} has {size} bytes; the limit is {max_bytes}")


def read(root: Cid, get: GetBlock, *, max_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield bytes ``start`` to ``stop`` of a file, block by block, each verified first.

    Args:
        get: returns a block's bytes; its errors pass through.
        max_bytes: limit on the whole file, not on the part to read.

    Raises:
        BlockMismatch: a block's bytes do not match its CID.
        InvalidBlock: a block is not part of a file, or sizes contradict each other.
        ContentTooLarge: the file exceeds ``max_bytes``, or a block or the tree exceeds the fixed limits.
    """
    for leaf in leaves(root, get, max_bytes=max_bytes, start=start, stop=stop):
        data = read_leaf(leaf, get, max_bytes=max_bytes)
        yield data[max(0, start - leaf.offset) : None if stop is None else max(0, stop - leaf.offset)]


def read_ahead(root: Cid, get: GetBlock, executor: Executor, *, max_bytes: int) -> Iterator[bytes]:
    """Yield a file by blocks; ``executor`` fetches ``MAX_AHEAD`` at once. As :func:`read`."""
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
    """Return the chunks of a file of ``size`` bytes in one node. Raises as :func:`read`."""
    links = [Link(root, size, size)]
    if root.codec != RAW:
        links = list(decode_node(verify_block(root, get(root))).links)
    if sum(link.size for link in links) != size or any(link.cid.codec != RAW for link in links):
        raise InvalidBlock(f"{root} is not a file of {size} bytes in one node")
    return links


def file_size(root: Cid, get: GetBlock) -> int:
    """Return the bytes in the file; fetches only the root block. Raises as :func:`read`."""
    block = verify_block(root, get(root))
    return len(block) if root.codec == RAW else decode_node(block).size


def cids(root: Cid, get: GetBlock) -> Iterator[Cid]:
    """Yield the CID of every block of a file once, depth first, the order in CAR files.

    Fetches only inner nodes, after it yields them.

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
