"""Codes of a payload's entries, and arithmetic on codes without decoding them. No torch.

A code is one byte: the level, and the highest bit if the value is negative. A level has one value in a whole chunk of
up to 4096 entries. Functions of a single value (fixed-point number, share in a sum) are computed once per level of a
chunk and looked up for each entry. These functions are odd, so the bits equal those of computing per entry.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.compress.positions import Integers, Offsets
from training_gym.model.tensors import Vector
from training_gym.runtime.compiled import compiled
from training_gym.spec.config import CHUNK

Codes = NDArray[np.uint8]
Counts = NDArray[np.int64]
Units = NDArray[np.int64]
"""[C, L + 1]: a whole number for each level of each chunk."""
LEVEL = np.uint8(0x7F)


def count_levels(codes: Codes, entries: Integers, levels: int) -> Counts:
    """Return how many entries of each chunk have each level [C, levels]."""
    counts = np.zeros((len(entries) - 1, levels), np.int64)
    _count(codes, entries, np.zeros((4, levels), np.int64), counts)
    return counts


@compiled
def _count(codes: Any, entries: Any, rows: Any, counts: Any) -> None:
    """Count in four rows, so that equal levels do not wait for each other's addition."""
    for chunk in range(len(counts)):
        part = codes[entries[chunk] : entries[chunk + 1]]
        if counts.shape[1] == 2:
            upper: Any = 0
            for entry in range(len(part)):
                upper += np.int64(part[entry] & np.uint8(1))
            counts[chunk, 0], counts[chunk, 1] = len(part) - upper, upper
        else:
            rows[:] = 0
            for entry in range(len(part)):
                rows[entry & 3, part[entry] & LEVEL] += 1
            for level in range(counts.shape[1]):
                counts[chunk, level] = rows[0, level] + rows[1, level] + rows[2, level] + rows[3, level]


def values_of(codes: Codes, entries: Integers, meaning: NDArray[np.float32]) -> Vector:
    """Return the values of the codes [E]."""
    values = np.empty(len(codes), np.float32)
    _values(codes, entries, meaning, values)
    return values


@compiled
def _values(codes: Any, entries: Any, meaning: Any, values: Any) -> None:
    signed = np.zeros(256, np.float32)
    for chunk in range(len(meaning)):
        first, last = entries[chunk], entries[chunk + 1]
        part, written = codes[first:last], values[first:last]
        for level in range(meaning.shape[1]):
            signed[level], signed[128 + level] = meaning[chunk, level], -meaning[chunk, level]
        for entry in range(len(part)):
            written[entry] = signed[part[entry]]


@compiled
def add_entries(total: Any, starts: Any, entries: Any, codes: Any, offsets: Any, amounts: Any, factor: int = 1) -> None:
    """Add the entries of some consecutive chunks to ``total``, their values, in place.

    Args:
        starts, entries: borders of these chunks (``positions.Chunks``).
        codes, offsets: of the whole payload.
        amounts: [C, L + 1], amount of each level of these chunks, of the type of ``total`` (float32 or int64).
        factor: 1 adds, -1 subtracts; both are exact.
    """
    signed = np.zeros(256, amounts.dtype)
    for chunk in range(len(amounts)):
        first, last = entries[chunk], entries[chunk + 1]
        part, sums = codes[first:last], total[starts[chunk] - starts[0] : starts[chunk + 1] - starts[0]]
        for level in range(amounts.shape[1]):
            signed[level], signed[128 + level] = factor * amounts[chunk, level], -factor * amounts[chunk, level]
        if len(offsets):
            places = offsets[first:last]
            for entry in range(len(part)):
                sums[places[entry]] += signed[part[entry]]
        elif amounts.shape[1] == 2:  # a choice vectorises, a lookup does not
            lower, upper = signed[0], signed[1]
            for entry in range(len(part)):
                amount = upper if part[entry] & np.uint8(1) else lower
                sums[entry] += -amount if part[entry] >> np.uint8(7) else amount
        else:
            for entry in range(len(part)):
                sums[entry] += signed[part[entry]]


def hash_places(starts: Integers, entries: Integers, offsets: Offsets, key: int) -> NDArray[np.uint16]:
    """Return a hash of each entry's position, of consecutive chunks with these borders.

    A word has ten bits of a random position and, lowest, a random sign. ``offsets`` are those of these entries only.
    """
    words = np.empty(len(offsets), np.uint16)
    _hash_places(starts.view(np.uint64), entries, offsets, np.uint64(key), words)
    return words


@compiled
def _hash_places(starts: Any, entries: Any, offsets: Any, key: Any, words: Any) -> None:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    for chunk in range(len(entries) - 1):
        start, first, last = starts[chunk] + key, entries[chunk] - entries[0], entries[chunk + 1] - entries[0]
        written, places = words[first:last], offsets[first:last]
        for entry in range(len(written)):
            word = (start + np.uint64(places[entry])) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
            written[entry] = np.uint16(((word >> np.uint64(54)) << np.uint64(1)) | (word & np.uint64(1)))


@compiled
def add_to_places(words: Any, entries: Any, codes: Any, units: Any, sums: Any) -> None:
    """Add the ``units`` of entries with these hash ``words``, unsigned, to ``sums``.

    Element w of ``sums`` collects positive values at random position w / 2, element w + 1 negative ones. ``entries``
    and ``units`` are those of the chunks to add; ``codes`` are the whole payload's.
    """
    for chunk in range(len(units)):
        row, part = units[chunk], codes[entries[chunk] : entries[chunk + 1]]
        hashed = words[entries[chunk] - entries[0] : entries[chunk + 1] - entries[0]]
        for entry in range(len(part)):
            sums[hashed[entry] ^ (part[entry] >> np.uint8(7))] += row[part[entry] & LEVEL]


@compiled
def add_four_to_places(words: Any, starts: Any, codes: Any, units: Any, sums: Any) -> None:
    """Do :func:`add_to_places` for four two-level payloads without offsets at a time.

    The two bits that each payload has at a position form one byte. The byte selects the four signed ``units``
    [4, C, 2]. ``sums`` has a column per payload.
    """
    together = np.empty(CHUNK, np.uint8)
    found = np.empty((256, 4), np.int64)
    for chunk in range(len(starts) - 1):
        together[:] = 0
        for which in range(4):
            part = codes[which][starts[chunk] : starts[chunk + 1]]
            for entry in range(len(part)):
                both = (part[entry] & np.uint8(1)) | (part[entry] >> np.uint8(6))
                together[entry] |= both << np.uint8(2 * which)
            for byte in range(256):
                unit = units[which, chunk, (byte >> (2 * which)) & 1]
                found[byte, which] = -unit if (byte >> (2 * which)) & 2 else unit
        hashed = words[starts[chunk] - starts[0] : starts[chunk + 1] - starts[0]]
        for entry in range(len(hashed)):
            row, total = found[together[entry]], sums[hashed[entry]]
            total[0] += row[0]
            total[1] += row[1]
            total[2] += row[2]
            total[3] += row[3]


@compiled
def multiply(
    starts: Any, entries: Any, codes: Any, offsets: Any, units: Any, vector: Any, one: float, bits: int, sums: Any
) -> None:
    """Sum the products of ``units`` and a ``vector`` per chunk, as integers in three parts.

    The vector is in units of 1 / ``one``. Both factors are split at ``bits``.
    """
    below = (1 << bits) - 1
    signed = np.zeros(256, np.int64)
    for chunk in range(len(units)):
        first, last = entries[chunk], entries[chunk + 1]
        part, values, places = codes[first:last], vector[starts[chunk] : starts[chunk + 1]], offsets[first:last]
        for level in range(units.shape[1]):
            signed[level], signed[128 + level] = units[chunk, level], -units[chunk, level]
        high: Any = 0
        crossed: Any = 0
        low: Any = 0
        for entry in range(len(part)):
            place = np.int64(places[entry]) if len(places) else entry
            x, y = signed[part[entry]], np.int64(np.rint(np.float64(values[place]) * one))
            x_high, x_low, y_high, y_low = x >> bits, x & below, y >> bits, y & below
            high += x_high * y_high
            crossed += x_high * y_low + x_low * y_high
            low += x_low * y_low
        sums[chunk, 0], sums[chunk, 1], sums[chunk, 2] = high, crossed, low
