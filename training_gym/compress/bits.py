"""Bit sections of a payload: integers of a fixed width, and Rice codes. No torch.

Bits are packed most significant first; a section ends with zero bits up to a full byte. A Rice code with parameter r
writes a number's quotient by 2**r in unary (that many zeros, then a one) and its remainder in r bits. Quotients and
remainders are two sections.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.runtime.compiled import compiled
from training_gym.spec.errors import PayloadError

MAX_WIDTH = 8


_MOST = 0xFFFF  # larger quotients are read as this one: no format has numbers that large


Numbers = NDArray[np.uint16] | NDArray[np.uint8]


Bytes = NDArray[np.uint8]


# Of each word with a single bit set, times this number, the upper six bits are different (de Bruijn's sequence).
_DE_BRUIJN = 0x03F79D71B4CB0A89


_PLACE_OF_BIT = np.zeros(64, np.uint8)


_PLACE_OF_BIT[[((_DE_BRUIJN << place) & (2**64 - 1)) >> 58 for place in range(64)]] = np.arange(64)


_SPREAD = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).view("<u8")[:, 0].astype(np.uint64)
"""Of each byte its bits, the highest first, as eight bytes in a row."""


def packed_size(count: int, width: int) -> int:
    """Bytes of ``count`` integers of ``width`` bits."""
    return (count * width + 7) // 8


def pack(values: Numbers, width: int) -> bytes:
    """The low ``width`` (0..8) bits of each of ``values`` as a bit section."""
    if width == 0:
        return b""
    if width == 1:
        return pack_bit(values.astype(np.uint8, copy=False), 0)
    packed = np.zeros(packed_size(len(values), width) + MAX_WIDTH, np.uint8)
    _pack(values, width, packed)
    return packed[:-MAX_WIDTH].tobytes()


@compiled
def _pack(values: Any, width: int, packed: Bytes) -> None:
    """Eight values make ``width`` bytes."""
    mask = (1 << width) - 1
    for group in range(-(-len(values) // 8)):
        word = 0
        if 8 * group + 8 <= len(values):
            for place in range(8 * group, 8 * group + 8):
                word = (word << width) | (values[place] & mask)
        else:
            for place in range(8 * group, 8 * group + 8):
                word = (word << width) | (values[place] & mask if place < len(values) else 0)
        for byte in range(width):
            packed[group * width + byte] = (word >> (8 * (width - 1 - byte))) & 0xFF


def unpack(section: memoryview, count: int, width: int) -> Bytes:
    """The integers in a bit section of ``packed_size(count, width)`` bytes.

    Raises:
        PayloadError: if the section does not end with zero bits.
    """
    if width == 0 or count == 0:
        return np.zeros(count, np.uint8)
    check_end(section, count * width)
    if width == 1:
        return np.unpackbits(np.frombuffer(section, np.uint8), count=count)
    groups = -(-count // 8)
    values = np.empty(8 * groups, np.uint8)
    _unpack(_padded(section, groups * width), width, values)
    return values[:count]


def check_end(section: memoryview, bits: int) -> None:
    """Refuse a section of so many ``bits`` that does not end with zero bits.

    Raises:
        PayloadError: if it does not.
    """
    if len(section) and section[-1] & ((1 << (8 * len(section) - bits)) - 1):
        raise PayloadError("not_canonical", "payload", "a bit section does not end in zero bits")


@compiled
def _unpack(packed: Bytes, width: int, values: Bytes) -> None:
    mask = (1 << width) - 1
    for group in range(len(values) // 8):
        word = 0
        for byte in range(width):
            word = (word << 8) | packed[group * width + byte]
        for place in range(8):
            values[8 * group + place] = (word >> (width * (7 - place))) & mask


def pack_bit(codes: Bytes, bit: int) -> bytes:
    """One bit of each of ``codes`` as a bit section."""
    packed = np.zeros(packed_size(len(codes), 1), np.uint8)
    whole = len(codes) // 8
    _pack_bit(codes[: 8 * whole].view("<u8"), np.uint64(bit), packed)
    if whole < len(packed):
        packed[whole:] = np.packbits((codes[8 * whole :] >> np.uint8(bit)) & np.uint8(1))
    return packed.tobytes()


@compiled
def _pack_bit(words: Any, bit: Any, packed: Bytes) -> None:
    """Multiplying brings the bits of eight bytes side by side into the uppermost, the first byte's highest."""
    for place in range(len(words)):
        spread = (words[place] >> bit) & np.uint64(0x0101010101010101)
        packed[place] = np.uint8((spread * np.uint64(0x8040201008040201)) >> np.uint64(56))


def add_bits(codes: Bytes, section: memoryview, bit: int) -> None:
    """Set this bit in those of ``codes`` whose bit in the section is set."""
    whole, packed = len(codes) // 8, np.frombuffer(section, np.uint8)
    _add_bits(codes[: 8 * whole].view("<u8"), _SPREAD << np.uint64(bit), packed)
    if whole < len(packed):
        codes[8 * whole :] |= np.unpackbits(packed[whole:], count=len(codes) - 8 * whole) << np.uint8(bit)


@compiled
def _add_bits(words: Any, spread: Any, packed: Bytes) -> None:
    for place in range(len(words)):
        words[place] |= spread[packed[place]]


def pack_unary(numbers: Numbers, parameter: int) -> bytes:
    """Each number's quotient by ``2**parameter`` as that many zeros and a one."""
    packed = np.zeros(packed_size(len(numbers) + _sum_of_quotients(numbers, parameter), 1), np.uint8)
    _pack_unary(numbers, parameter, packed)
    return packed.tobytes()


@compiled
def _sum_of_quotients(numbers: Any, parameter: int) -> int:
    total = 0
    for number in numbers:
        total += number >> parameter
    return total


@compiled
def _pack_unary(numbers: Any, parameter: int, packed: Bytes) -> None:
    bit = -1
    for number in numbers:
        bit += (number >> parameter) + 1
        packed[bit >> 3] |= 0x80 >> (bit & 7)


def unpack_unary(section: memoryview, count: int, most: int, code: str) -> NDArray[np.uint16]:
    """The ``count`` quotients in a section, which holds nothing else.

    Raises:
        PayloadError: another number of quotients, one beyond ``most`` (``code``), or bytes after the last one.
    """
    quotients = np.empty(count, np.uint16)
    found, last = _unpack_unary(_padded(section, -(-len(section) // 8) * 8).view("<u8"), quotients)
    if found > count:
        raise PayloadError("wrong_count", "payload", f"a section holds more than the {count} codes that belong")
    if quotients[:found].max(initial=0) > most:
        raise PayloadError(code, "payload", "a number is beyond its limit")
    if found < count:
        raise PayloadError("wrong_count", "payload", f"a section holds {found} codes where {count} belong")
    if last // 8 + 1 != len(section):
        raise PayloadError("not_canonical", "payload", "a section goes on after its last code")
    return quotients


@compiled
def _unpack_unary(words: Any, quotients: Any) -> tuple[int, int]:
    """The number of ones (one more than there is room for where there are more) and the place of the last."""
    found, last = 0, -1
    for number in range(len(words)):
        word = words[number]  # bytes in their order from the lowest; of each, the bits are turned round here
        word = ((word >> np.uint64(1)) & np.uint64(0x5555555555555555)) | (
            (word & np.uint64(0x5555555555555555)) << np.uint64(1)
        )
        word = ((word >> np.uint64(2)) & np.uint64(0x3333333333333333)) | (
            (word & np.uint64(0x3333333333333333)) << np.uint64(2)
        )
        word = ((word >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)) | (
            (word & np.uint64(0x0F0F0F0F0F0F0F0F)) << np.uint64(4)
        )
        while word:
            lowest = word & (~word + np.uint64(1))
            place = 64 * number + _PLACE_OF_BIT[(lowest * np.uint64(_DE_BRUIJN)) >> np.uint64(58)]
            if found == len(quotients):
                return found + 1, last
            quotients[found] = min(place - last - 1, _MOST)
            found, last = found + 1, place
            word ^= lowest
    return found, last


def join_codes(quotients: NDArray[np.uint16], remainders: Bytes, parameter: int) -> None:
    """Make the numbers of a Rice code, all below 256, of their ``remainders``."""
    _join_codes(quotients, remainders, parameter)


@compiled
def _join_codes(quotients: Any, remainders: Any, parameter: int) -> None:
    for place in range(len(remainders)):
        remainders[place] |= np.uint8(quotients[place] << parameter)


def _padded(section: memoryview, size: int) -> Bytes:
    """A copy of the section that goes on with zeros up to ``size`` bytes."""
    padded = np.zeros(size, np.uint8)
    padded[: len(section)] = np.frombuffer(section, np.uint8)
    return padded


def histogram(numbers: Numbers) -> NDArray[np.int64]:
    """How often each of the numbers from 0 to the largest occurs."""
    counts = np.zeros((4, int(numbers.max()) + 1 if len(numbers) else 0), np.int64)
    _count(numbers, counts)
    totals: NDArray[np.int64] = counts.sum(axis=0)
    return totals


@compiled
def _count(numbers: Any, counts: Any) -> None:
    """In four rows, so that a count does not wait for the one before, which is often of the same number."""
    for place in range(len(numbers)):
        counts[place & 3, numbers[place]] += 1


def rice_sizes(counts: NDArray[np.int64], parameters: range) -> list[tuple[int, int]]:
    """Bytes of (quotients, remainders) of the Rice code for each of ``parameters``, of numbers of which there are so
    many of each, from 0 on."""
    entries = int(counts.sum())
    values = np.arange(len(counts))
    quotients = (int((counts * (values >> parameter)).sum()) for parameter in parameters)
    return [
        (packed_size(entries + total, 1), packed_size(entries, parameter))
        for parameter, total in zip(parameters, quotients, strict=True)
    ]
