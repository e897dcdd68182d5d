"""Proof of a checkpoint copy."""

import hashlib
from collections.abc import Sequence

from market.platform.storage.client import Storage
from zoo_protocol.hashing import from_hex, to_hex


def pin_proof(storage: Storage, nonce: str, cids: Sequence[str]) -> tuple[str, int]:
    """Return a holder's expected proof of the files (0x hex), and their bytes.

    The files have no size limit here: they are the market's own, or were measured at delivery.
    """
    digest, size = hashlib.sha256(from_hex(nonce)), 0
    for cid in cids:
        for piece in storage.open_stream(cid, max_bytes=2**63):
            digest.update(piece)
            size += len(piece)
    return to_hex(digest.digest()), size
