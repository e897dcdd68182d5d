"""The trace of one unit of work: what a worker commits to before it knows what will be replayed.

A unit (one worker's one outer round) runs ``H`` inner steps, cut into segments of ``segment_steps``. The
trace has one leaf per segment boundary, ``segments + 1`` in all: leaf 0 is the state the unit started from,
the last leaf is the end state after compression. The root goes into the signed :class:`UnitCommitment`.
"""

import struct
from collections.abc import Sequence

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, keccak


def state_leaf(
    job_id: str, round_: int, slot: int, boundary: int, state_digest: bytes, environment_class: str
) -> bytes:
    """Leaf ``boundary`` of a unit's trace.

    Args:
        job_id: ``0x`` hex of 32 bytes.
        round_: outer round, counted from 0.
        slot: worker slot within the job.
        boundary: 0 for the start state, ``segments`` for the end state.
        state_digest: 32-byte digest of parameters, optimiser, error feedback (and payload at the end).
        environment_class: 0x hex of 32 bytes; what makes two replays bit-comparable.
    """
    encoded = (
        b"zoo-trace-1"
        + from_hex(job_id)
        + struct.pack(">QQQ", round_, slot, boundary)
        + state_digest
        + from_hex(environment_class)
    )
    return merkle.leaf_hash(encoded)


def trace_root(leaves: Sequence[bytes]) -> bytes:
    """Root over a unit's boundary leaves, in order."""
    return merkle.root(leaves)


def payload_hash(payload_digest: bytes, provider: str, salt: bytes) -> bytes:
    """Salted hash that binds a payload to its provider before it is revealed, so that nobody can copy it.

    Args:
        payload_digest: SHA2-256 of the payload bytes (32 bytes).
        provider: checksummed or lower-case ``0x`` address.
        salt: 32 random bytes, revealed with the payload.
    """
    return keccak(payload_digest + bytes.fromhex(provider.removeprefix("0x")) + salt)
