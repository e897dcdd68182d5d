"""Hashes and canonical JSON.

Canonical JSON is RFC 8785 (JCS): sorted keys, no blanks, ECMAScript numbers. Amounts are decimal strings, because a
JSON number cannot represent 2**256 - 1.
"""

import hashlib
from typing import Any

import rfc8785
from eth_utils.crypto import keccak as _keccak


def keccak(data: bytes) -> bytes:
    """Return Keccak-256 (32 bytes), Solidity's ``keccak256``."""
    return bytes(_keccak(data))


def sha256(data: bytes) -> bytes:
    """Return SHA2-256 (32 bytes), the hash inside CIDs."""
    return hashlib.sha256(data).digest()


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 bytes of ``value``. Raises CanonicalizationError."""
    return rfc8785.dumps(value)


def to_hex(data: bytes) -> str:
    """Return lower-case ``0x`` hex, the form of hashes in JSON."""
    return "0x" + data.hex()


def from_hex(text: str, length: int = 32) -> bytes:
    """Return a ``0x`` hex string's ``length`` bytes. Raises ValueError: other form or length."""
    if not text.startswith("0x") or len(text) != 2 + 2 * length:
        raise ValueError(f"expected 0x followed by {2 * length} hex digits, got {text[:80]!r}")
    raw = bytes.fromhex(text[2:])
    if len(raw) != length:  # fromhex skips blanks
        raise ValueError(f"expected 0x followed by {2 * length} hex digits, got {text[:80]!r}")
    return raw
