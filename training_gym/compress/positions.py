"""Where the entries of a payload lie. No torch.

A payload has ``top_k`` entries of each chunk of 4096 (of the last, shorter one at most as many as it is long), so an
entry's place is told by its offset in its chunk: 2 bytes. ``offsets`` is [E], ascending in each chunk; empty where
every entry is sent.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.runtime.compiled import compiled
from training_gym.spec.config import CHUNK

Offsets = NDArray[np.uint16]


Integers = NDArray[np.int64]


EVERYWHERE: Offsets = np.zeros(0, np.uint16)
"""The offsets where every entry is sent."""


def gaps_of(offsets: Offsets, top_k: int) -> Offsets:
    """Entries skipped before each entry [E]: fewer than two chunks have."""
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
    """The offsets for these gaps in a vector of ``size``; None if a chunk would hold another number of entries."""
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
    """The entries' places in the whole vector [E]."""
    if top_k == CHUNK:
        return np.arange(size)
    return offsets + np.arange(len(offsets)) // top_k * CHUNK
