"""Selection of a vector's entries to send, and quantisation of their values. No torch.

Of each chunk (``positions``) the largest magnitudes are sent, ties to the lower index. A sent value is a sign and one
of L + 1 = 2**(b-1) magnitudes, evenly spaced from the chunk's ``low`` to its ``high``. These two are bfloat16, to keep
scales a small part of a sparse payload. The arithmetic is float32, one IEEE operation at a time, so all machines
compute the same bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.compress.codes import LEVEL, Codes
from training_gym.compress.positions import EVERYWHERE, Chunks, Integers, Offsets
from training_gym.model.tensors import Vector
from training_gym.runtime.compiled import compiled
from training_gym.runtime.threads import map_in_threads
from training_gym.spec.config import CHUNK
from training_gym.spec.errors import PayloadError

Scales = NDArray[np.uint16]
Meaning = NDArray[np.float32]
"""[C, L + 1]: magnitude of each level of each chunk."""
_ROWS = 32
"""Chunks processed at a time: a few copies of them (512 KB each) fit in the processor's cache."""
_RUNS = CHUNK // 128
"""Number of runs in which numpy sums a chunk."""
LARGEST_SCALE = np.uint16(0x7F7F)
_EXPONENT = np.uint16(0x7F80)
_SIGN = np.uint32(0x80000000)
_INFINITY = np.uint32(0x7F800000)
_NOT_CANONICAL, _NOT_FINITE = 1, 2


@dataclass(frozen=True, slots=True)
class Quantised:
    """The sent entries, in ascending order of position; E entries, C chunks.

    Attributes:
        offsets: [E], see ``positions``.
        low, high: [C] bfloat16 as 16 bits: magnitudes of level 0 and of the highest level.
        codes: [E], see ``codes``.
    """

    offsets: Offsets
    low: Scales
    high: Scales
    codes: Codes


def _blocks(chunks: Chunks) -> Iterator[slice]:
    """Yield ranges of up to ``_ROWS`` chunks of equal length."""
    lengths = np.diff(chunks.starts)
    runs = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    for start, stop in pairwise(runs):
        for first in range(start, stop, _ROWS):
            yield slice(first, min(first + _ROWS, stop))


def quantise(vector: Vector, chunks: Chunks, bits: int) -> Quantised:
    """Return the entries of ``vector`` (float32 [N]) to send. Raises PayloadError: not finite."""
    levels_above, entries = (1 << (bits - 1)) - 1, int(chunks.entries[-1])
    offsets = EVERYWHERE if chunks.top_k == CHUNK else np.empty(entries, np.uint16)
    low, high = np.empty(len(chunks), np.uint16), np.empty(len(chunks), np.uint16)
    codes = np.empty(entries, np.uint8)

    def fill(block: slice) -> None:
        rows, sent = block.stop - block.start, slice(int(chunks.entries[block.start]), int(chunks.entries[block.stop]))
        pattern = vector[chunks.values(block)].view(np.uint32).reshape(rows, -1)
        written = codes[sent].reshape(rows, -1)
        if chunks.top_k < CHUNK:
            magnitude = pattern & ~_SIGN  # these integers have the order of the magnitudes
            magnitude.partition(-written.shape[1], axis=1)
            places, chosen = offsets[sent].reshape(rows, -1), np.empty(written.shape, np.uint32)
            _choose(pattern, magnitude[:, -written.shape[1]].copy(), places, chosen)
            pattern = chosen
        low[block], high[block] = _scales(pattern, levels_above)
        bottom, step = grid(low[block], high[block], levels_above)
        _round(pattern, pattern.view(np.float32), bottom, step, np.float32(levels_above), written)

    map_in_threads(fill, _blocks(chunks))
    return Quantised(offsets, low, high, codes)


@compiled
def _choose(pattern: Any, threshold: Any, offsets: Any, chosen: Any) -> None:
    """Choose each row's entries from ``threshold`` on; of equal ones the first that fit."""
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
            for number in range(count - 1, -1, -1):  # move the kept entries to the end
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
def _round(pattern: Any, values: Any, bottom: Any, step: Any, most: Any, codes: Any) -> None:
    """Write the code of each value's nearest level, up to ``most``; a zero is never negative."""
    for row in range(len(codes)):
        start, width = bottom[row], step[row]
        line, bits, written = values[row], pattern[row], codes[row]
        # Two levels do not span the whole range of the sent values.
        for place in range(len(written)):
            level = np.rint((abs(line[place]) - start) / width) if width > 0 else np.float32(0)
            code = np.uint8(min(max(level, np.float32(0)), most))
            sign = np.uint8((bits[place] >> np.uint32(24)) & np.uint32(0x80))
            written[place] = code | sign if start > 0 or code else code  # a level above 0 is never zero


def level_magnitudes(low: Scales, high: Scales, bits: int) -> Meaning:
    """Return the magnitudes of the levels between ``low`` and ``high``; infinite beyond float32."""
    levels_above = (1 << (bits - 1)) - 1
    bottom, step = grid(low, high, levels_above)
    with np.errstate(over="ignore"):
        meaning = step[:, None] * np.arange(levels_above + 1).astype(np.float32)
        meaning += bottom[:, None]
    return meaning


def check_codes(codes: Codes, entries: Integers, low: Scales, high: Scales, meaning: Meaning) -> None:
    """Refuse codes that ``quantise`` never writes.

    Raises:
        PayloadError: a value is beyond float32, a level is above 0 although all levels are equal, or a zero is
            negative.
    """
    # Only these chunks can have a flaw.
    chunks = np.flatnonzero((low == 0) | (low == high) | ~np.isfinite(meaning[:, -1]))
    magnitude = meaning[chunks]
    flaw = np.zeros((len(chunks), 2, magnitude.shape[1]), np.uint8)
    flaw[:, :, 1:] |= (_NOT_CANONICAL * (low == high)[chunks].astype(np.uint8))[:, None, None]
    flaw[:, 1] |= _NOT_CANONICAL * (magnitude == 0).astype(np.uint8)
    flaw |= (_NOT_FINITE * (~np.isfinite(magnitude)).astype(np.uint8))[:, None]
    found = _flaws(codes, entries, chunks, flaw)
    if found & _NOT_FINITE:
        raise PayloadError("not_finite", "payload", "a value is beyond float32")
    if found & _NOT_CANONICAL:
        raise PayloadError("not_canonical", "payload", "a chunk has a non-canonical level or a negative zero")


@compiled
def _flaws(codes: Any, entries: Any, chunks: Any, flaw: Any) -> int:
    flaws = 0
    for number in range(len(chunks)):
        part = codes[entries[chunks[number]] : entries[chunks[number] + 1]]
        for entry in range(len(part)):
            flaws |= flaw[number, part[entry] >> np.uint8(7), part[entry] & LEVEL]
    return flaws


def scales_are_valid(low: Scales, high: Scales) -> bool:
    """Return whether every chunk has finite scales with 0 <= low <= high."""
    return bool((high < _EXPONENT).all() and (low <= high).all())


def _scales(pattern: NDArray[np.uint32], levels_above: int) -> tuple[Scales, Scales]:
    """Return each chunk's (low, high): the sent range, or both parts' means with two levels."""
    rows, sent = pattern.shape
    if levels_above > 1:
        least, most = np.empty(rows, np.uint32), np.empty(rows, np.uint32)
        _range(pattern, least, most)
        _check_finite(most.view(np.float32))
        return bfloat_below(least.view(np.float32)), bfloat_above(most.view(np.float32))
    total, above, counts = np.empty(rows), np.empty(rows), np.empty(rows, np.int64)
    if sent == CHUNK:
        _sum_whole(pattern.view(np.uint64), total, above, counts)
    else:
        wide = np.abs(pattern.view(np.float32)).astype(np.float64)
        wide.sum(axis=1, out=total)
        _above(pattern.view(np.float32), total / sent, wide, counts)
        wide.sum(axis=1, out=above)
    _check_finite(total)
    low = (total - above) / (sent - counts)  # the smallest is never above the mean
    high = np.where(counts > 0, above / np.maximum(counts, 1), low)
    low, high = np.maximum(low, 0).astype(np.float32), high.astype(np.float32)
    return bfloat_below(low), np.maximum(bfloat_below(low), bfloat_above(high))


def _check_finite(numbers: NDArray[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise PayloadError("not_finite", "pseudo_gradient", "has a value that is not finite; training has diverged")


@compiled
def _range(pattern: Any, least: Any, most: Any) -> None:
    for row in range(len(pattern)):
        line = pattern[row]
        low = high = line[0] & np.uint32(0x7FFFFFFF)
        for place in range(len(line)):
            magnitude = line[place] & np.uint32(0x7FFFFFFF)
            low, high = min(low, magnitude), max(high, magnitude)
        least[row], most[row] = low, high


@compiled
def _above(values: Any, limits: Any, wide: Any, counts: Any) -> None:
    """Write the magnitudes of each row above its limit, zero elsewhere, and count them."""
    for row in range(len(values)):
        line, written, limit = values[row], wide[row], limits[row]
        count = 0
        for place in range(len(line)):
            magnitude = np.float64(abs(line[place]))
            written[place] = magnitude if magnitude > limit else 0.0
            count += magnitude > limit
        counts[row] = count


@compiled
def _sum_whole(pairs: Any, total: Any, above: Any, counts: Any) -> None:
    """Sum each whole chunk's magnitudes (pairs), then those above the mean, and count these."""
    # The sums must be in numpy's order, which decides their bits. numpy cuts 4096 numbers into 32 runs of 128. In each
    # run it makes eight sums of every eighth number and adds them two by two. A copy with the first eights of all runs
    # together, then the second ones and so on, is summed 256 numbers at a time.
    copied = np.empty(CHUNK // 2, np.uint64)
    magnitudes, sums = copied.view(np.float32), np.empty(8 * _RUNS)
    for row in range(len(pairs)):
        line = pairs[row]
        for eight in range(16):
            for run in range(_RUNS):
                for pair in range(4):
                    both = line[run * 64 + eight * 4 + pair]
                    copied[(eight * _RUNS + run) * 4 + pair] = both & np.uint64(0x7FFFFFFF7FFFFFFF)
        limit = -1.0
        for phase in range(2):
            sums[:] = 0
            count: Any = 0
            for eight in range(16):
                part = magnitudes[eight * len(sums) : (eight + 1) * len(sums)]
                for place in range(len(sums)):
                    magnitude = np.float64(part[place])
                    sums[place] += 0.0 if magnitude <= limit else magnitude  # NaN stays
                    count += magnitude > limit
            left = len(sums) // 2
            while left:
                for place in range(left):
                    sums[place] = sums[2 * place] + sums[2 * place + 1]
                left //= 2
            if phase == 0:
                total[row] = sums[0]
                limit = sums[0] / CHUNK
            counts[row] = count
        above[row] = sums[0]


def bfloat_below(values: Vector) -> Scales:
    """Return the largest bfloat16 that is not above each value."""
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def bfloat_above(values: Vector) -> Scales:
    """Return the smallest bfloat16 that is not below each value, at most the largest finite one."""
    rounded = (values.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)
    return np.minimum(rounded.astype(np.uint16), LARGEST_SCALE)


def grid(low: Scales, high: Scales, levels_above: int) -> tuple[Vector, Vector]:
    """Return each chunk's lowest magnitude and the step between magnitudes, both [C]."""
    bottom, top = ((scale.astype(np.uint32) << np.uint32(16)).view(np.float32) for scale in (low, high))
    return bottom, (top - bottom) / np.float32(levels_above)
