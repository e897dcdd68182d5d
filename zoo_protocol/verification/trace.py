"""Trace of a work unit: a provider commits to it before sampling.

A unit (one replica's outer round) runs ``H`` inner steps, cut into segments of ``segment_steps``. The trace has one
leaf per segment boundary, ``segments + 1`` in all. Leaf 0 is the unit's start state, the last leaf the end state after
compression. The root is part of the signed :class:`UnitCommitment`.
"""

import struct
from collections.abc import Sequence

from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, keccak


def state_leaf(
    job_id: str, round_: int, slot: int, boundary: int, state_digest: bytes, environment_class: str
) -> bytes:
    """Return leaf ``boundary`` of a unit's trace.

    Args:
        job_id: ``0x`` hex of 32 bytes.
        round_: outer round, counted from 0.
        slot: replica within the job.
        boundary: 0 for the start state, ``segments`` for the end state.
        state_digest: 32-byte digest of parameters, optimiser, error feedback (and payload at the end).
        environment_class: 0x hex of 32 bytes; replays of one class have equal bits.
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
    """Return the root over a unit's boundary leaves, in order."""
    return merkle.root(leaves)


def payload_hash(payload_digest: bytes, provider: str, salt: bytes) -> bytes:
    """Return the salted hash that binds a payload to its provider before the reveal.

    Args:
        payload_digest: SHA2-256 of the payload bytes (32 bytes).
        provider: checksummed or lower-case ``0x`` address.
        salt: 32 random bytes, revealed with the payload.
    """
    return keccak(payload_digest + bytes.fromhex(provider.removeprefix("0x")) + salt)
