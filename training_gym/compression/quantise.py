"""Which entries of a vector are sent, and their values in a few bits. No torch.

The vector is cut into chunks of 4096, the last one shorter. Of a chunk of length n the min(k, n) largest magnitudes are
sent, ties to the lower index. A sent value is its sign and one of L + 1 = 2**(b-1) magnitudes, evenly spaced from the
chunk's ``low`` to its ``high``, which are bfloat16 so that scales stay a small part of a sparse payload. The arithmetic
is float32, one IEEE operation at a time: the same on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.blocks import in_threads
from training_gym.compiled import compiled
from training_gym.compression.places import EVERYWHERE, Offsets
from training_gym.config import CHUNK
from training_gym.errors import PayloadError
from training_gym.tensors import Vector

Bytes = NDArray[np.uint8]
Scales = NDArray[np.uint16]

_ROWS = 16
"""Chunks worked on at a time: a few copies of them (256 KB each) stay in the processor's cache."""
_LARGEST_SCALE = np.uint16(0x7F7F)
_EXPONENT = np.uint16(0x7F80)
_SIGN = np.uint32(0x80000000)
_INFINITY = np.uint32(0x7F800000)
_NOT_CANONICAL, _NOT_FINITE = np.uint8(1), np.uint8(2)


@dataclass(frozen=True, slots=True)
class Quantised:
    """The sent entries, in ascending order of their places; E entries, C chunks.

    Attributes:
        offsets: [E], see ``places``.
        low, high: [C] bfloat16 as its 16 bits: the magnitudes of level 0 and of the highest level.
        levels: [E].
        negative: [E], truth values.
    """

    offsets: Offsets
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
    """The entries of ``vector`` (float32 [N], contiguous) that are sent.

    Raises:
        PayloadError: if a value is not finite.
    """
    size, levels_above = len(vector), (1 << (bits - 1)) - 1
    entries, chunks = entry_count(size, top_k), chunk_count(size)
    offsets = EVERYWHERE if top_k == CHUNK else np.empty(entries, np.uint16)
    low, high = np.empty(chunks, np.uint16), np.empty(chunks, np.uint16)
    levels, negative = np.empty(entries, np.uint8), np.empty(entries, np.bool_)

    def fill(block: _Block) -> None:
        pattern = vector[block.values].view(np.uint32).reshape(-1, block.length)
        if top_k < CHUNK:
            magnitude = pattern & ~_SIGN  # as integers they order as the numbers do
            magnitude.partition(-block.sent, axis=1)
            places = offsets[block.entries].reshape(-1, block.sent)
            chosen = np.empty(places.shape, np.uint32)
            _choose(pattern, magnitude[:, -block.sent].copy(), places, chosen)
            pattern = chosen
        low[block.chunks], high[block.chunks] = _scales(pattern & ~_SIGN, levels_above)
        bottom, step = _grid(low[block.chunks], high[block.chunks], levels_above)
        _round(
            pattern.view(np.float32),
            pattern >= _SIGN,
            bottom,
            step,
            np.float32(levels_above),
            levels[block.entries],
            negative[block.entries],
        )

    in_threads(fill, _blocks(size, top_k))
    return Quantised(offsets, low, high, levels, negative)


@compiled
def _choose(pattern: Any, threshold: Any, offsets: Any, chosen: Any) -> None:
    """Of each row, the entries whose magnitudes reach its ``threshold``; of those that equal it the first ones, as many
    as there is room for."""
    rows, length = pattern.shape
    sent = offsets.shape[1]
    found = np.empty(length, np.uint16)
    for row in range(rows):
        least = threshold[row]
        count: Any = 0
        for place in range(length):
            found[count] = place
            count += np.int64((pattern[row, place] & np.uint32(0x7FFFFFFF)) >= least)
        surplus = count - sent
        if surplus:  # rare: several entries share the smallest magnitude sent
            kept = count
            for number in range(count - 1, -1, -1):  # what is kept moves up to the end
                if surplus and (pattern[row, found[number]] & np.uint32(0x7FFFFFFF)) == least:
                    surplus -= 1
                else:
                    kept -= 1
                    found[kept] = found[number]
        for number in range(sent):
            place = found[count - sent + number]
            offsets[row, number] = place
            chosen[row, number] = pattern[row, place]


@compiled
def _round(values: Any, negatives: Any, bottom: Any, step: Any, most: Any, levels: Any, negative: Any) -> None:
    """The nearest level, up to ``most``, of each magnitude, and whether its value is negative: a zero is not."""
    rows, sent = values.shape
    for row in range(rows):
        start, width = bottom[row], step[row]
        # Two levels do not reach to the ends of what is sent.
        for place in range(sent):
            level = np.rint((abs(values[row, place]) - start) / width) if width > 0 else np.float32(0)
            level = min(max(level, np.float32(0)), most)
            levels[row * sent + place] = np.uint8(level)
            negative[row * sent + place] = negatives[row, place] and (start > 0 or width * level > 0)


def dequantise(sent: Quantised, top_k: int, bits: int) -> Vector:
    """The values of the entries [E].

    Raises:
        PayloadError: if a value is beyond float32, or written in another way than the one in which ``quantise`` writes
            it: level 0 where all levels are equal, and no negative zero.
    """
    levels_above = (1 << (bits - 1)) - 1
    bottom, step = _grid(sent.low, sent.high, levels_above)
    level = np.arange(levels_above + 1, dtype=np.uint8)
    with np.errstate(over="ignore"):
        magnitude = step[:, None] * level
        magnitude += bottom[:, None]
    meaning = np.stack([magnitude, -magnitude], axis=1)  # [C, 2, L + 1]: all that an entry of a chunk can mean
    flaw = np.zeros(meaning.shape, np.uint8)
    flaw[:, :, 1:] |= _NOT_CANONICAL * (step == 0)[:, None, None]
    flaw[:, 1] |= _NOT_CANONICAL * (magnitude == 0)
    flaw |= _NOT_FINITE * ~np.isfinite(meaning)
    values = np.empty(len(sent.levels), np.float32)
    found = _look_up(meaning, flaw, sent.levels, sent.negative.view(np.uint8), top_k, values)
    if found & _NOT_FINITE:
        raise PayloadError("not_finite", "payload", "a value is beyond float32")
    if found & _NOT_CANONICAL:
        raise PayloadError("not_canonical", "payload", "a value is written in another way than the format allows")
    return values


@compiled
def _look_up(meaning: Any, flaw: Any, levels: Any, negative: Any, top_k: int, values: Any) -> int:
    """The values of the entries, and all flaws of any of them."""
    flaws = 0
    for chunk in range(len(meaning)):
        for entry in range(chunk * top_k, min(chunk * top_k + top_k, len(values))):
            sign, level = negative[entry], levels[entry]
            values[entry] = meaning[chunk, sign, level]
            flaws |= flaw[chunk, sign, level]
    return flaws


def scales_are_valid(low: Scales, high: Scales) -> bool:
    """Whether every chunk has 0 <= low <= high, finite."""
    return bool((high < _EXPONENT).all() and (low <= high).all())


def _scales(magnitude: NDArray[np.uint32], levels_above: int) -> tuple[Scales, Scales]:
    """Each chunk's (low, high): with many levels the range sent, with two the means of its lower and upper part."""
    most = magnitude.max(axis=1)
    if (most >= _INFINITY).any():  # the largest are sent, so one that is not finite is among them
        raise PayloadError("not_finite", "pseudo_gradient", "holds a value that is not finite; training has diverged")
    if levels_above > 1:
        return _bfloat_below(magnitude.min(axis=1).view(np.float32)), _bfloat_above(most.view(np.float32))
    wide = magnitude.view(np.float32).astype(np.float64)
    total, sent = wide.sum(axis=1), magnitude.shape[1]
    upper = wide > (total / sent)[:, None]
    count = np.count_nonzero(upper, axis=1)
    wide *= upper
    above = wide.sum(axis=1)
    low = (total - above) / (sent - count)  # the smallest is never above the mean
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
    """Each chunk's lowest magnitude and the step between magnitudes, both [C]."""
    bottom, top = ((scale.astype(np.uint32) << np.uint32(16)).view(np.float32) for scale in (low, high))
    return bottom, (top - bottom) / np.float32(levels_above)
