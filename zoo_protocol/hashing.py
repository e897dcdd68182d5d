"""Hashes and canonical JSON shared by both sides.

Canonical JSON is RFC 8785 (JCS): sorted keys, no blanks, ECMAScript numbers. Amounts travel as decimal
strings, because a JSON number cannot hold 2**256 - 1.
"""

import hashlib
from typing import Any

import rfc8785
from eth_utils.crypto import keccak as _keccak


def keccak(data: bytes) -> bytes:
    """Keccak-256, as Solidity's ``keccak256`` (32 bytes)."""
    return bytes(_keccak(data))


def sha256(data: bytes) -> bytes:
    """SHA2-256 (32 bytes), the hash inside our CIDs."""
    return hashlib.sha256(data).digest()


def canonical_json(value: Any) -> bytes:
    """The RFC 8785 bytes of ``value``.

    Raises:
        rfc8785.CanonicalizationError: for values JSON cannot hold (NaN, integers beyond 2**53, other types).
    """
    return rfc8785.dumps(value)


def to_hex(data: bytes) -> str:
    """Lower-case ``0x`` hex, the form in which hashes travel in JSON."""
    return "0x" + data.hex()


def from_hex(text: str, length: int = 32) -> bytes:
    """Bytes of a ``0x`` hex string of exactly ``length`` bytes.

    Raises:
        ValueError: if the text is not ``0x`` followed by ``2 * length`` hex digits.
    """
    if not text.startswith("0x") or len(text) != 2 + 2 * length:
        raise ValueError(f"expected 0x followed by {2 * length} hex digits, got {text[:80]!r}")
    raw = bytes.fromhex(text[2:])
    if len(raw) != length:  # it skips blanks
        raise ValueError(f"expected 0x followed by {2 * length} hex digits, got {text[:80]!r}")
    return raw
