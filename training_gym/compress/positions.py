"""Positions of a payload's entries. No torch.

A payload has ``top_k`` entries of each chunk of 4096 (a shorter last chunk has at most its length). The offset in the
chunk, 2 bytes, therefore gives the position. ``offsets`` is [E], ascending in each chunk; empty if all are sent.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.runtime.compiled import compiled
from training_gym.spec.config import CHUNK

Offsets = NDArray[np.uint16]
Integers = NDArray[np.int64]
EVERYWHERE: Offsets = np.zeros(0, np.uint16)
"""Offsets of a payload that sends every entry."""


def gaps_of(offsets: Offsets, top_k: int) -> Offsets:
    """Return the entries skipped before each entry [E], fewer than two chunks have."""
    gaps = np.empty_like(offsets)
    _gaps(offsets, top_k, gaps)
    return gaps


@compiled
def _gaps(offsets: Any, top_k: int, gaps: Any) -> None:
    before: Any = -1  # counted from the chunk's start
    for first in range(0, len(offsets), top_k):
        for entry in range(first, min(first + top_k, len(offsets))):
            gaps[entry] = offsets[entry] - before - 1
            before = np.int64(offsets[entry])
        before -= CHUNK


def offsets_of(gaps: Offsets, top_k: int, size: int) -> Offsets | None:
    """Return the offsets for these gaps; None if a chunk gets a wrong number of entries."""
    offsets = np.empty_like(gaps)
    return offsets if _offsets(gaps, top_k, size, offsets) else None


@compiled
def _offsets(gaps: Any, top_k: int, size: int, offsets: Any) -> bool:
    before: Any = -1
    for first in range(0, len(gaps), top_k):
        if before + 1 + gaps[first] < 0:
            return False
        for entry in range(first, min(first + top_k, len(gaps))):
            before += 1 + np.int64(gaps[entry])
            offsets[entry] = before
        if before >= min(CHUNK, size):
            return False
        before -= CHUNK
        size -= CHUNK
    return True


def indices_of(offsets: Offsets, top_k: int, size: int) -> Integers:
    """Return the entries' positions in the whole vector [E]."""
    if top_k == CHUNK:
        return np.arange(size)
    return offsets + np.arange(len(offsets)) // top_k * CHUNK
