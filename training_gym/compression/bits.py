"""Bit sections of a payload: integers of a fixed width, and Rice codes. No torch, and no loop over entries.

Bits are packed most significant first; a section ends with zero bits up to a full byte. A Rice code with parameter r
writes a number's quotient by 2**r in unary (that many zeros, then a one) and its remainder in r bits. Quotients and
remainders are two sections, so that both are read with whole-array operations.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from training_gym.blocks import spans
from training_gym.errors import PayloadError

MAX_WIDTH = 8

_SECTION_BYTES = 1 << 13

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


def pack(values: Integers | Bytes, width: int) -> bytes:
    """The low ``width`` (0..8) bits of each of ``values`` as a bit section.

    Eight values are one big-endian 64-bit word; halving steps close the gaps between its fields.
    """
    if width == 0:
        return b""
    if width == 1:
        return np.packbits((values & 1).astype(np.bool_)).tobytes()
    sections, mask = [], np.uint8((1 << width) - 1)
    for span in spans(len(values)):  # a whole number of words, but for the last
        chunk = values[span].astype(np.uint8) & mask
        padded = np.zeros(-(-len(chunk) // 8) * 8, np.uint8)
        padded[: len(chunk)] = chunk
        words = padded.view(">u8").astype(np.uint64)
        for field, upper in _UPPER.items():
            gap = np.uint64(field - width * field // 8)
            words = ((words & upper) >> gap) | (words & ~upper)
        narrow = words.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
        sections.append(narrow.tobytes()[: packed_size(len(chunk), width)])
    return b"".join(sections)


def unpack(section: memoryview, count: int, width: int) -> Bytes:
    """The integers in a bit section of ``packed_size(count, width)`` bytes.

    Raises:
        PayloadError: if the section does not end with zero bits.
    """
    if width == 0 or count == 0:
        return np.zeros(count, np.uint8)
    if section[-1] & ((1 << (8 * len(section) - count * width)) - 1):
        raise PayloadError("not_canonical", "payload", "a bit section does not end in zero bits")
    packed = np.frombuffer(section, np.uint8)
    if width == 1:
        return np.unpackbits(packed, count=count)
    values = np.empty(count, np.uint8)
    for span in spans(count):
        length = span.stop - span.start
        part = packed[span.start // 8 * width : span.start // 8 * width + packed_size(length, width)]
        padded = np.zeros(-(-length // 8) * width, np.uint8)
        padded[: len(part)] = part
        narrow = np.zeros((len(padded) // width, 8), np.uint8)
        narrow[:, 8 - width :] = padded.reshape(-1, width)
        words = narrow.view(">u8").ravel().astype(np.uint64)
        for field, upper in reversed(_UPPER.items()):
            used = width * field // 8
            words = ((words << np.uint64(field - used)) & upper) | (words & _fields(used, field, 0))
        values[span] = words.astype(">u8").view(np.uint8)[:length]
    return values


def pack_unary(numbers: Integers | Bytes, parameter: int = 0) -> bytes:
    """Each number's quotient by ``2**parameter`` as that many zeros and a one."""
    sections, left = [], np.zeros(0, np.bool_)  # left: bits that do not fill a byte yet
    for span in spans(len(numbers)):
        ends = np.cumsum((numbers[span] >> parameter) + np.int64(1))
        ends += len(left) - 1
        bits = np.zeros(int(ends[-1]) + 1, np.bool_)
        bits[: len(left)] = left
        bits[ends] = True
        whole = len(bits) & ~7
        sections.append(np.packbits(bits[:whole]).tobytes())
        left = bits[whole:]
    return b"".join(sections) + np.packbits(left).tobytes()


def unpack_unary(section: memoryview, count: int) -> Iterator[tuple[slice, Integers]]:
    """The ``count`` quotients in a section, which holds nothing else: piece by piece, each with its place.

    Raises:
        PayloadError: another number of quotients, or bytes after the last one.
    """
    data, found, last = np.frombuffer(section, np.uint8), 0, -1
    for first in range(0, len(data), _SECTION_BYTES):
        ends = np.flatnonzero(np.unpackbits(data[first : first + _SECTION_BYTES]).view(np.bool_))
        if found + len(ends) > count:
            raise PayloadError("wrong_count", "payload", f"a section holds more than the {count} codes that belong")
        if len(ends):
            ends += 8 * first
            yield slice(found, found + len(ends)), np.diff(ends, prepend=last) - 1
            found, last = found + len(ends), int(ends[-1])
    if found != count:
        raise PayloadError("wrong_count", "payload", f"a section holds {found} codes where {count} belong")
    if last // 8 + 1 != len(section):
        raise PayloadError("not_canonical", "payload", "a section goes on after its last code")


def histogram(numbers: Integers | Bytes) -> Integers:
    """How often each of the numbers from 0 to the largest (which must be small) occurs."""
    most = int(numbers.max()) if len(numbers) else -1
    counts = np.zeros(most + 1, np.int64)
    for span in spans(len(numbers)):
        counts += np.bincount(numbers[span], minlength=most + 1)
    return counts


def rice_sizes(numbers: NDArray[np.int64] | Bytes, parameters: range) -> list[tuple[int, int]]:
    """Bytes of (quotients, remainders) of the Rice code of ``numbers`` for each of ``parameters``.

    From a histogram: ``numbers`` must be small (the histogram has as many places as the largest).
    """
    counts, entries = histogram(numbers), len(numbers)
    values = np.arange(len(counts))
    quotients = (int((counts * (values >> parameter)).sum()) for parameter in parameters)
    return [
        (packed_size(entries + total, 1), packed_size(entries, parameter))
        for parameter, total in zip(parameters, quotients, strict=True)
    ]
