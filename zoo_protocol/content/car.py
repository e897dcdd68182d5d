"""CARv1 archives: one root and the blocks under it, as trustless gateways send them.

https://ipld.io/specs/transport/car/carv1/. The header is DAG-CBOR. With one root of 36 bytes it is a constant around
the CID, so it is compared, not parsed.
"""

from collections.abc import Iterable, Iterator

from zoo_protocol.content import varint
from zoo_protocol.content.cid import MAX_BLOCK_BYTES, Cid, InvalidBlock, verify_block

_CID_BYTES = 36


def _header(root: Cid) -> bytes:
    # {"roots": [CID], "version": 1}; a link is tag 42 around the CID with a leading zero byte.
    header = b"\xa2\x65roots\x81\xd8\x2a\x58\x25\x00" + root.to_bytes() + b"\x67version\x01"
    return varint.encode(len(header)) + header


def write(root: Cid, blocks: Iterable[tuple[Cid, bytes | memoryview]]) -> Iterator[bytes]:
    """Yield the archive of ``blocks`` in the given order, piece by piece."""
    yield _header(root)
    for cid, data in blocks:
        yield b"".join([varint.encode(_CID_BYTES + len(data)), cid.to_bytes(), data])


def read(pieces: Iterable[bytes], root: Cid) -> Iterator[tuple[Cid, bytes]]:
    """Yield the blocks of an archive that arrives in pieces of any length, each verified first.

    The archive's end does not prove completeness; the reader of the DAG detects missing blocks.

    Raises:
        InvalidBlock: the archive is malformed, cut inside a block, or has another root.
        InvalidCid: a block's CID has an unsupported kind.
        BlockMismatch: a block does not hash to its CID.
    """
    source = _Pieces(pieces)
    header = _header(root)
    if source.take(len(header)) != header:
        raise InvalidBlock(f"not a CARv1 archive with the single root {root}")
    while not source.at_end():
        length = source.take_varint()
        if not _CID_BYTES <= length <= _CID_BYTES + MAX_BLOCK_BYTES:
            raise InvalidBlock(f"a section of {length} bytes in the archive of {root}")
        cid = Cid.from_bytes(source.take(_CID_BYTES))
        yield cid, verify_block(cid, source.take(length - _CID_BYTES))


class _Pieces:
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._current = memoryview(b"")  # rest of the last piece

    def at_end(self) -> bool:
        while not self._current:
            piece = next(self._pieces, None)
            if piece is None:
                return True
            self._current = memoryview(piece)
        return False

    def take(self, length: int) -> bytes:
        parts = []
        while length:
            if self.at_end():
                raise InvalidBlock("the archive ends inside a block")
            part, self._current = self._current[:length], self._current[length:]
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def take_varint(self) -> int:
        encoded = self.take(1)
        while encoded[-1] >= 0x80 and len(encoded) < varint.MAX_VARINT_BYTES:
            encoded += self.take(1)
        try:
            return varint.decode(encoded)[0]
        except ValueError as error:
            raise InvalidBlock(str(error)) from error
