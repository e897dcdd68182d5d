"""Proof that a node holds a copy of a checkpoint."""

import hashlib
from collections.abc import Sequence

from market.platform.storage.client import Storage
from zoo_protocol.hashing import from_hex, to_hex


def pin_proof(storage: Storage, nonce: str, cids: Sequence[str]) -> tuple[str, int]:
    """The proof that a holder of the files ``cids`` gives, 0x hex, and their bytes. Reads them; raises StorageError.

    The files are the market's own checkpoints or were measured when they were delivered, so no limit is set here.
    """
    digest, size = hashlib.sha256(from_hex(nonce)), 0
    for cid in cids:
        for piece in storage.open_stream(cid, max_bytes=2**63):
            digest.update(piece)
            size += len(piece)
    return to_hex(digest.digest()), size
