"""Content identifiers: CIDv1, base32, raw (0x55) or dag-pb (0x70), SHA2-256.

Implemented here because these CIDs are 36 bytes with a fixed prefix. The multiformats packages would add seven
dependencies and a registry of hundreds of codecs, of which all but two must be refused. The form is that of
https://github.com/multiformats/cid. Other legal forms are refused, so that one content has one identifier.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import TypeVar

RAW = 0x55
DAG_PB = 0x70
MAX_BLOCK_BYTES = 2 * 1024 * 1024  # the largest block that IPFS nodes exchange
Buffer = bytes | bytearray | memoryview
"""Bytes, possibly a view of another buffer."""
_Data = TypeVar("_Data", bound=Buffer)
_HASH_PREFIX = b"\x12\x20"  # SHA2-256, 32 bytes
_BYTES_LENGTH = 36


class ContentError(ValueError):
    """Refusal of content; ``code`` is stable."""

    code = "content_invalid"


class InvalidCid(ContentError):
    """The text or bytes are not a CID of a supported kind."""

    code = "cid_invalid"


class InvalidBlock(ContentError):
    """A block matches its CID but is not a well-formed part of a file."""

    code = "block_invalid"


class BlockMismatch(ContentError):
    """The bytes do not hash to their CID."""

    code = "block_corrupt"


class ContentTooLarge(ContentError):
    """The content exceeds the limit that the reader set."""

    code = "content_too_large"


@dataclass(frozen=True, slots=True)
class Cid:
    """A parsed CID; ``str()`` gives the text form (``bafkrei...`` or ``bafybei...``)."""

    codec: int
    digest: bytes

    def __str__(self) -> str:
        return "b" + base64.b32encode(self.to_bytes()).decode().lower().rstrip("=")

    def to_bytes(self) -> bytes:
        """Return the binary form (36 bytes) used in links and CAR files."""
        return bytes((1, self.codec)) + _HASH_PREFIX + self.digest

    @classmethod
    def from_bytes(cls, data: bytes) -> "Cid":
        """Return the CID of its binary form. Raises InvalidCid: not raw or dag-pb, SHA2-256."""
        if len(data) != _BYTES_LENGTH or data[0] != 1 or data[1] not in (RAW, DAG_PB) or data[2:4] != _HASH_PREFIX:
            raise InvalidCid(f"expected a CIDv1 (raw or dag-pb, sha2-256) of 36 bytes, got {data[:40].hex()!r}")
        return cls(data[1], bytes(data[4:]))


def parse(text: str) -> Cid:
    """Return the CID of its text form. Raises InvalidCid: not lower-case base32 CIDv1."""
    try:
        padded = text[1:].upper() + "=" * (-(len(text) - 1) % 8)
        cid = Cid.from_bytes(base64.b32decode(padded))
    except (binascii.Error, ValueError):
        cid = None
    if cid is None or str(cid) != text:  # the comparison refuses capitals, padding and stray trailing bits
        raise InvalidCid(
            f"{text[:80]!r} is not a CID this network uses; expected CIDv1 in base32 (bafkrei... or bafybei...), "
            "as printed by `ipfs add --cid-version=1`"
        )
    return cid


def of_block(codec: int, data: Buffer) -> Cid:
    """Return the CID of one block's bytes."""
    return Cid(codec, hashlib.sha256(data).digest())


def cids_of_digest(digest: bytes) -> tuple[str, str]:
    """Return both possible CIDs of a file with this SHA2-256 digest: raw block, or tree."""
    raw, tree = (str(Cid.from_bytes(bytes((1, codec)) + _HASH_PREFIX + digest)) for codec in (RAW, DAG_PB))
    return raw, tree


def digest_of(cid: str) -> bytes:
    """Return the SHA2-256 digest (32 bytes) inside a CID text. Raises as :func:`parse`."""
    return parse(cid).digest


def verify_block(cid: Cid, data: _Data) -> _Data:
    """Return ``data`` if it is the block of ``cid``. Raises BlockMismatch, ContentTooLarge."""
    if len(data) > MAX_BLOCK_BYTES:
        raise ContentTooLarge(f"block {cid} has {len(data)} bytes; the limit is {MAX_BLOCK_BYTES}")
    if hashlib.sha256(data).digest() != cid.digest:
        raise BlockMismatch(f"the bytes for {cid} hash to {of_block(cid.codec, data)}; fetch them elsewhere")
    return data
