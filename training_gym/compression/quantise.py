"""Which entries of a vector are sent, and their values in a few bits. No torch.

The vector is cut into chunks of 4096, the last one shorter. Of a chunk of length n the min(k, n) largest magnitudes are
sent, ties to the lower index. A sent value is its sign and one of L + 1 = 2**(b-1) magnitudes, evenly spaced from the
chunk's ``low`` to its ``high``, which are bfloat16 so that scales stay a small part of a sparse payload. The arithmetic
is float32, one IEEE operation at a time: the same on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training_gym.blocks import in_threads
from training_gym.config import CHUNK
from training_gym.tensors import Vector

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Scales = NDArray[np.uint16]

_ROWS = 64
"""Chunks worked on at a time: their magnitudes (1 MB) stay in the processor's cache."""
_LARGEST_SCALE = np.uint16(0x7F7F)
_EXPONENT = np.uint16(0x7F80)
_SIGN = np.uint32(0x80000000)


@dataclass(frozen=True, slots=True)
class Quantised:
    """The sent entries, in ascending order of their flat ``indices``; E entries, C chunks.

    Attributes:
        indices: [E], ascending; None where every entry is sent.
        low, high: [C] bfloat16 as its 16 bits: the magnitudes of level 0 and of the highest level.
        levels: [E].
        negative: [E], truth values.
    """

    indices: Integers | None
    low: Scales
    high: Scales
    levels: Bytes
    negative: NDArray[np.bool_]


def chunk_count(size: int) -> int:
    """Chunks of a vector of ``size`` values."""
    return -(-size // CHUNK)


def entry_count(size: int, top_k: int) -> int:
    """Entries sent of a vector of ``size`` values."""
    full, tail = divmod(size, CHUNK)
    return full * top_k + min(tail, top_k)


@dataclass(frozen=True, slots=True)
class _Block:
    """Some chunks of equal length: where they lie in the vector, among the chunks and among the entries."""

    values: slice
    chunks: slice
    entries: slice
    length: int
    sent: int


def _blocks(size: int, top_k: int) -> Iterator[_Block]:
    full, tail = divmod(size, CHUNK)
    for first in range(0, full, _ROWS):
        last = min(first + _ROWS, full)
        yield _Block(
            slice(first * CHUNK, last * CHUNK), slice(first, last), slice(first * top_k, last * top_k), CHUNK, top_k
        )
    if tail:
        sent = min(tail, top_k)
        entries = slice(full * top_k, full * top_k + sent)
        yield _Block(slice(full * CHUNK, size), slice(full, full + 1), entries, tail, sent)


def quantise(vector: Vector, top_k: int, bits: int) -> Quantised:
    """The entries of ``vector`` (finite float32 [N]) that are sent."""
    size, levels_above = len(vector), (1 << (bits - 1)) - 1
    entries, chunks = entry_count(size, top_k), chunk_count(size)
    indices = None if top_k == CHUNK else np.empty(entries, np.int64)
    low, high = np.empty(chunks, np.uint16), np.empty(chunks, np.uint16)
    levels, negative = np.empty(entries, np.uint8), np.empty(entries, np.bool_)

    def fill(block: _Block) -> None:
        pattern = vector[block.values].view(np.uint32)
        magnitude = (pattern & ~_SIGN).reshape(-1, block.length)  # as integers they order as the numbers do
        if block.sent < block.length:
            places = np.flatnonzero(_largest(magnitude, block.sent))
            pattern, magnitude = pattern[places], magnitude.ravel()[places].reshape(-1, block.sent)
            places += block.values.start
        else:  # of a tail that is sent whole
            places = np.arange(block.values.start, block.values.stop)
        if indices is not None:
            indices[block.entries] = places
        sent = magnitude.view(np.float32)
        low[block.chunks], high[block.chunks] = _scales(sent, levels_above)
        bottom, step = _grid(low[block.chunks], high[block.chunks], levels_above)
        level = sent - bottom
        level /= np.where(step > 0, step, np.float32(np.inf))
        np.rint(level, out=level)
        np.clip(level, np.float32(0), np.float32(levels_above), out=level)  # two levels do not reach to the ends
        levels[block.entries] = level.astype(np.uint8).ravel()
        zero = bottom + step * level == 0
        negative[block.entries] = (pattern >= _SIGN) & ~zero.ravel()

    in_threads(fill, _blocks(size, top_k))
    return Quantised(indices, low, high, levels, negative)


def dequantise(sent: Quantised, size: int, top_k: int, bits: int) -> tuple[Vector, bool]:
    """The values of the entries [E], and whether they are written in the one way that ``quantise`` writes them:
    level 0 where all levels are equal, and no negative zero. A value beyond float32 comes out as infinity."""
    levels_above = (1 << (bits - 1)) - 1
    values, canonical = np.empty(len(sent.levels), np.float32), True
    for block in _blocks(size, top_k):
        bottom, step = _grid(sent.low[block.chunks], sent.high[block.chunks], levels_above)
        level = sent.levels[block.entries].reshape(-1, block.sent)
        with np.errstate(over="ignore"):
            magnitude = step * level
            magnitude += bottom
        negative = sent.negative[block.entries].reshape(-1, block.sent)
        flat = step == 0
        canonical &= not ((flat & (level > 0)).any() if flat.any() else False)
        canonical &= not ((magnitude == 0) & negative).any()
        pattern = negative.astype(np.uint32)
        pattern <<= np.uint32(31)
        pattern |= magnitude.view(np.uint32)
        values[block.entries] = pattern.view(np.float32).ravel()
    return values, canonical


def scales_are_valid(low: Scales, high: Scales) -> bool:
    """Whether every chunk has 0 <= low <= high, finite."""
    return bool((high < _EXPONENT).all() and (low <= high).all())


def _largest(magnitude: NDArray[np.uint32], sent: int) -> NDArray[np.bool_]:
    """Marks the ``sent`` largest of each row, ties to the lower place."""
    threshold = np.partition(magnitude, -sent, axis=1)[:, -sent, None]
    chosen: NDArray[np.bool_] = magnitude >= threshold
    surplus = np.count_nonzero(chosen, axis=1) - sent
    for row in np.flatnonzero(surplus):  # rare: several entries share the smallest magnitude sent
        ties = np.flatnonzero(magnitude[row] == threshold[row])
        chosen[row, ties[len(ties) - surplus[row] :]] = False
    return chosen


def _scales(sent: Vector, levels_above: int) -> tuple[Scales, Scales]:
    """Each chunk's (low, high): with many levels the range sent, with two the means of its lower and upper part."""
    if levels_above > 1:
        return _bfloat_below(sent.min(axis=1)), _bfloat_above(sent.max(axis=1))
    wide = sent.astype(np.float64)
    upper = wide > wide.mean(axis=1, keepdims=True)
    count = np.count_nonzero(upper, axis=1)
    above = (wide * upper).sum(axis=1)
    low = (wide.sum(axis=1) - above) / (sent.shape[1] - count)  # the smallest is never above the mean
    high = np.where(count > 0, above / np.maximum(count, 1), low)
    low, high = np.maximum(low, 0).astype(np.float32), high.astype(np.float32)
    return _bfloat_below(low), np.maximum(_bfloat_below(low), _bfloat_above(high))


def _bfloat_below(values: Vector) -> Scales:
    """The largest bfloat16 that is not above each value."""
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def _bfloat_above(values: Vector) -> Scales:
    """The smallest bfloat16 that is not below each value, at most the largest finite one."""
    rounded = (values.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)
    return np.minimum(rounded.astype(np.uint16), _LARGEST_SCALE)


def _grid(low: Scales, high: Scales, levels_above: int) -> tuple[Vector, Vector]:
    """Each chunk's lowest magnitude and the step between magnitudes, both [C, 1]."""
    bottom, top = ((scale.astype(np.uint32) << np.uint32(16)).view(np.float32) for scale in (low, high))
    return bottom[:, None], ((top - bottom) / np.float32(levels_above))[:, None]
