"""Hashes of an auction round.

The market commits to a secret when a round opens. If a random tie-break is needed, its seed is made of that secret and
a block hash. The market names the block and publishes the orders' hash before the block exists. Neither the market nor
the block's producer can therefore choose the outcome.
"""

from typing import Any

from zoo_protocol.hashing import canonical_json, sha256


def commitment(secret: bytes) -> bytes:
    """Return the commitment to a round's secret, public from its opening."""
    return sha256(secret)


def lot_seed(secret: bytes, block_hash: bytes) -> bytes:
    """Return the seed of the random tie-break."""
    return sha256(secret + block_hash)


def book_hash(book: dict[str, Any]) -> bytes:
    """Return the hash of a round's published orders, over their canonical JSON."""
    return sha256(canonical_json(book))
