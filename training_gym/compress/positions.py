"""Chunks of a vector, and positions of a payload's entries in them. No torch.

Each tensor begins a chunk, so tensors of different magnitudes never share scales. A tensor is cut into chunks of 4096
values; its last one may be shorter. Of a chunk of n values a payload has ``ceil(top_k * n / 4096)`` entries, at least
one. An entry's offset in its chunk takes 2 bytes. ``offsets`` is [E], ascending in each chunk; empty if all are sent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.runtime.compiled import compiled
from training_gym.spec.config import CHUNK

Offsets = NDArray[np.uint16]
Integers = NDArray[np.int64]
EVERYWHERE: Offsets = np.zeros(0, np.uint16)
"""Offsets of a payload that sends every entry."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """The C chunks of a vector, and the entries that a payload has of each.

    Attributes:
        top_k: entries of each whole chunk; 4096 sends all without offsets.
        starts: [C + 1], first value of each chunk, then the size of the vector.
        entries: [C + 1], first entry of each chunk, then the number of entries.
    """

    top_k: int
    starts: Integers
    entries: Integers

    def __len__(self) -> int:
        return len(self.starts) - 1

    def values(self, part: slice) -> slice:
        """Return the values of the chunks ``part``."""
        return slice(int(self.starts[part.start]), int(self.starts[part.stop]))

    def cut(self, spans: Iterable[slice]) -> list[slice]:
        """Return consecutive ``spans`` of values as chunks, each from the first that begins in it.

        The spans together begin and end at a chunk's border.
        """
        listed = list(spans)
        borders = np.searchsorted(self.starts, [span.start for span in listed] + [span.stop for span in listed[-1:]])
        return [slice(first, last) for first, last in pairwise(borders.tolist()) if first < last]


def chunks_of(sizes: Sequence[int], top_k: int) -> Chunks:
    """Return the chunks of tensors with these ``sizes``, each at least 1."""
    values = np.array(sizes, np.int64)
    counts = -(-values // CHUNK)
    lengths = np.full(counts.sum(), CHUNK, np.int64)
    lengths[counts.cumsum() - 1] = values - (counts - 1) * CHUNK
    starts, entries = np.zeros(len(lengths) + 1, np.int64), np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=starts[1:])
    (-(-lengths * top_k // CHUNK)).cumsum(out=entries[1:])
    return Chunks(top_k, starts, entries)


def chunk_count(sizes: Iterable[int]) -> int:
    """Return the number of chunks of tensors with these ``sizes``."""
    return sum(-(-size // CHUNK) for size in sizes)


def entry_count(sizes: Iterable[int], top_k: int) -> int:
    """Return the number of entries sent of tensors with these ``sizes``."""
    return sum(size // CHUNK * top_k - (-(size % CHUNK) * top_k // CHUNK) for size in sizes)


def gaps_of(offsets: Offsets, chunks: Chunks) -> Offsets:
    """Return the values skipped before each entry [E], fewer than two chunks have."""
    gaps = np.empty_like(offsets)
    if len(offsets):
        _gaps(offsets, chunks.starts, chunks.entries, gaps)
    return gaps


@compiled
def _gaps(offsets: Any, starts: Any, entries: Any, gaps: Any) -> None:
    before: Any = np.int64(-1)  # counted from the chunk's start
    for chunk in range(len(starts) - 1):
        for entry in range(entries[chunk], entries[chunk + 1]):
            offset = np.int64(offsets[entry])
            gaps[entry] = offset - before - 1
            before = offset
        before -= starts[chunk + 1] - starts[chunk]


def offsets_of(gaps: Offsets, chunks: Chunks) -> Offsets | None:
    """Return the offsets for these gaps; None if a chunk gets a wrong number of entries."""
    offsets = np.empty_like(gaps)
    return offsets if _offsets(gaps, chunks.starts, chunks.entries, offsets) else None


@compiled
def _offsets(gaps: Any, starts: Any, entries: Any, offsets: Any) -> bool:
    before: Any = np.int64(-1)
    for chunk in range(len(starts) - 1):
        length = starts[chunk + 1] - starts[chunk]
        if before + 1 + np.int64(gaps[entries[chunk]]) < 0:
            return False
        for entry in range(entries[chunk], entries[chunk + 1]):
            before += 1 + np.int64(gaps[entry])
            offsets[entry] = before & 0xFFFF
        if before >= length:
            return False
        before -= length
    return True


def indices_of(offsets: Offsets, chunks: Chunks) -> Integers:
    """Return the entries' positions in the whole vector [E]."""
    if chunks.top_k == CHUNK:
        return np.arange(chunks.starts[-1])
    places = np.repeat(chunks.starts[:-1], np.diff(chunks.entries))
    places += offsets
    return places
