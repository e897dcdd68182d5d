"""What both sides hash of an auction round.

The market commits to a secret when a round opens. If the lot has to decide who sells, the seed is made of that secret
and the hash of a block that is named, and the orders' hash published, before the block exists: then neither the market
nor whoever makes the block can choose the lot.
"""

from typing import Any

from zoo_protocol.hashing import canonical_json, sha256


def commitment(secret: bytes) -> bytes:
    """What is public of a round's secret from its opening on."""
    return sha256(secret)


def lot_seed(secret: bytes, block_hash: bytes) -> bytes:
    """Seed of the lot."""
    return sha256(secret + block_hash)


def book_hash(book: dict[str, Any]) -> bytes:
    """Hash of a round's orders as they are published, over their canonical JSON."""
    return sha256(canonical_json(book))
