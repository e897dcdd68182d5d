"""Bit sections of a payload: integers of a fixed width, and Rice codes. No torch, and no loop over entries.

Bits are packed most significant first; a section ends with zero bits up to a full byte. A Rice code with parameter r
writes a number's quotient by 2**r in unary (that many zeros, then a one) and its remainder in r bits. Quotients and
remainders are two sections, so that both are read with whole-array operations.
"""

import numpy as np
from numpy.typing import NDArray

from training_gym.errors import PayloadError

MAX_WIDTH = 8

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def _fields(used: int, width: int, first: int) -> np.uint64:
    """The mask of ``used`` bits at bit ``first`` and at every ``2 * width`` bits above it in a 64-bit word."""
    return np.uint64(sum(((1 << used) - 1) << shift for shift in range(first, 64, 2 * width)))


_UPPER = {width: _fields(width, width, width) for width in (8, 16, 32)}
"""Of a word cut into pairs of fields of ``width`` bits: the upper (earlier) field of every pair."""


def packed_size(count: int, width: int) -> int:
    """Bytes of ``count`` integers of ``width`` bits."""
    return (count * width + 7) // 8


def pack(values: Bytes, width: int) -> bytes:
    """Integers below ``2**width`` (width 0..8) as a bit section.

    Eight values are one big-endian 64-bit word; halving steps close the gaps between its fields.
    """
    if width == 0:
        return b""
    padded = np.zeros(-(-len(values) // 8) * 8, np.uint8)
    padded[: len(values)] = values
    words = padded.view(">u8").astype(np.uint64)
    for field, upper in _UPPER.items():
        gap = np.uint64(field - width * field // 8)
        words = ((words & upper) >> gap) | (words & ~upper)
    narrow = words.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
    return narrow.tobytes()[: packed_size(len(values), width)]


def unpack(section: memoryview, count: int, width: int) -> Bytes:
    """The integers in a bit section of ``packed_size(count, width)`` bytes.

    Raises:
        PayloadError: if the section does not end with zero bits.
    """
    if width == 0 or count == 0:
        return np.zeros(count, np.uint8)
    if section[-1] & ((1 << (8 * len(section) - count * width)) - 1):
        raise PayloadError("not_canonical", "payload", "a bit section does not end in zero bits")
    padded = np.zeros(-(-count // 8) * width, np.uint8)
    padded[: len(section)] = np.frombuffer(section, np.uint8)
    narrow = np.zeros((len(padded) // width, 8), np.uint8)
    narrow[:, 8 - width :] = padded.reshape(-1, width)
    words = narrow.view(">u8").ravel().astype(np.uint64)
    for field, upper in reversed(_UPPER.items()):
        used = width * field // 8
        words = ((words << np.uint64(field - used)) & upper) | (words & _fields(used, field, 0))
    return words.astype(">u8").view(np.uint8)[:count]


def pack_unary(quotients: Integers) -> bytes:
    """Each quotient as that many zeros and a one."""
    if not len(quotients):
        return b""
    ends = np.cumsum(quotients + 1) - 1
    bits = np.zeros(int(ends[-1]) + 1, np.bool_)
    bits[ends] = True
    return np.packbits(bits).tobytes()


def unpack_unary(section: memoryview, count: int) -> Integers:
    """The ``count`` quotients in a section, which holds nothing else.

    Raises:
        PayloadError: another number of quotients, or bytes after the last one.
    """
    ends = np.flatnonzero(np.unpackbits(np.frombuffer(section, np.uint8)).view(np.bool_))
    if len(ends) != count:
        raise PayloadError("wrong_count", "payload", f"a section holds {len(ends)} codes where {count} belong")
    if count and ends[-1] // 8 + 1 != len(section):
        raise PayloadError("not_canonical", "payload", "a section goes on after its last code")
    return np.diff(ends, prepend=-1) - 1


def rice_sizes(numbers: NDArray[np.int64] | Bytes, parameters: range) -> list[tuple[int, int]]:
    """Bytes of (quotients, remainders) of the Rice code of ``numbers`` for each of ``parameters``.

    From a histogram: ``numbers`` must be small (the histogram has as many places as the largest).
    """
    counts, entries = np.bincount(numbers), len(numbers)
    values = np.arange(len(counts))
    quotients = (int((counts * (values >> parameter)).sum()) for parameter in parameters)
    return [
        (packed_size(entries + total, 1), packed_size(entries, parameter))
        for parameter, total in zip(parameters, quotients, strict=True)
    ]
