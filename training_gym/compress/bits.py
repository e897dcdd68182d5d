"""Bit sections of a payload: integers of a fixed width, and Rice codes. No torch.

Bits are packed most significant first; a section ends with zero bits up to a full byte. A Rice code with parameter r
has two sections. One has each number's quotient by 2**r in unary: that many zeros, then a one. The other has the
remainders in r bits each.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.runtime.compiled import compiled
from training_gym.spec.errors import PayloadError

MAX_WIDTH = 8
_MAX_QUOTIENT = 0xFFFF  # larger quotients are read as this value; no format has numbers that large
Numbers = NDArray[np.uint16] | NDArray[np.uint8]
Bytes = NDArray[np.uint8]

# Multiplied by this number (a de Bruijn sequence), words with a single bit set differ in their upper six bits.
_DE_BRUIJN = 0x03F79D71B4CB0A89
_BIT_INDEX = np.zeros(64, np.uint8)
_BIT_INDEX[[((_DE_BRUIJN << place) & (2**64 - 1)) >> 58 for place in range(64)]] = np.arange(64)
_SPREAD = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).view("<u8")[:, 0].astype(np.uint64)
"""The bits of each byte, highest first, as eight bytes in a row."""


def packed_size(count: int, width: int) -> int:
    """Return the bytes that ``count`` integers of ``width`` bits take."""
    return (count * width + 7) // 8


def pack(values: Numbers, width: int) -> bytes:
    """Return the low ``width`` (0..8) bits of each of ``values`` as a bit section."""
    if width == 0:
        return b""
    if width == 1:
        return pack_bit(values.astype(np.uint8, copy=False), 0)
    packed = np.zeros(packed_size(len(values), width) + MAX_WIDTH, np.uint8)
    _pack(values, width, packed)
    return packed[:-MAX_WIDTH].tobytes()


@compiled
def _pack(values: Any, width: int, packed: Bytes) -> None:
    mask = (1 << width) - 1
    for group in range(-(-len(values) // 8)):
        word: Any = np.int64(0)
        if 8 * group + 8 <= len(values):
            for place in range(8 * group, 8 * group + 8):
                word = (word << width) | (np.int64(values[place]) & mask)
        else:
            for place in range(8 * group, 8 * group + 8):
                word = (word << width) | (np.int64(values[place]) & mask if place < len(values) else 0)
        for byte in range(width):
            packed[group * width + byte] = (word >> (8 * (width - 1 - byte))) & 0xFF


def unpack(section: memoryview, count: int, width: int) -> Bytes:
    """Return ``count`` integers of a bit section. Raises PayloadError: no zero bits at the end."""
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
    """Raise PayloadError if a section of ``bits`` bits does not end with zero bits."""
    if len(section) and section[-1] & ((1 << (8 * len(section) - bits)) - 1):
        raise PayloadError("not_canonical", "payload", "a bit section does not end in zero bits")


@compiled
def _unpack(packed: Bytes, width: int, values: Bytes) -> None:
    mask = (1 << width) - 1
    for group in range(len(values) // 8):
        word: Any = np.int64(0)
        for byte in range(width):
            word = (word << 8) | np.int64(packed[group * width + byte])
        for place in range(8):
            values[8 * group + place] = (word >> (width * (7 - place))) & mask


def pack_bit(codes: Bytes, bit: int) -> bytes:
    """Return one bit of each of ``codes`` as a bit section."""
    packed = np.zeros(packed_size(len(codes), 1), np.uint8)
    whole = len(codes) // 8
    _pack_bit(codes[: 8 * whole].view("<u8"), np.uint64(bit), packed)
    if whole < len(packed):
        packed[whole:] = np.packbits((codes[8 * whole :] >> np.uint8(bit)) & np.uint8(1))
    return packed.tobytes()


@compiled
def _pack_bit(words: Any, bit: Any, packed: Bytes) -> None:
    """Gather one bit of each of eight bytes into a byte; the product adds the shifts."""
    for place in range(len(words)):
        spread = (words[place] >> bit) & np.uint64(0x0101010101010101)
        packed[place] = np.uint8((spread * np.uint64(0x8040201008040201)) >> np.uint64(56))


def add_bits(codes: Bytes, section: memoryview, bit: int) -> None:
    """Set ``bit`` in each of ``codes`` whose bit in the section is set."""
    whole, packed = len(codes) // 8, np.frombuffer(section, np.uint8)
    _add_bits(codes[: 8 * whole].view("<u8"), _SPREAD << np.uint64(bit), packed)
    if whole < len(packed):
        codes[8 * whole :] |= np.unpackbits(packed[whole:], count=len(codes) - 8 * whole) << np.uint8(bit)


@compiled
def _add_bits(words: Any, spread: Any, packed: Bytes) -> None:
    for place in range(len(words)):
        words[place] |= spread[packed[place]]


def pack_unary(numbers: Numbers, parameter: int) -> bytes:
    """Return each number's quotient by ``2**parameter`` as that many zeros and a one."""
    packed = np.zeros(packed_size(len(numbers) + _sum_of_quotients(numbers, parameter), 1), np.uint8)
    _pack_unary(numbers, parameter, packed)
    return packed.tobytes()


@compiled
def _sum_of_quotients(numbers: Any, parameter: int) -> int:
    total: Any = np.int64(0)
    for number in numbers:
        total += np.int64(number) >> parameter
    return int(total)


@compiled
def _pack_unary(numbers: Any, parameter: int, packed: Bytes) -> None:
    bit: Any = np.int64(-1)
    for number in numbers:
        bit += (np.int64(number) >> parameter) + 1
        packed[bit >> 3] |= 0x80 >> (bit & 7)


def unpack_unary(section: memoryview, count: int, limit: int, code: str) -> NDArray[np.uint16]:
    """Return the ``count`` quotients of a section that contains nothing else.

    Raises:
        PayloadError: the number of quotients differs, one exceeds ``limit`` (``code``), or bytes follow the last one.
    """
    quotients = np.empty(count, np.uint16)
    found, last = _unpack_unary(_padded(section, -(-len(section) // 8) * 8).view("<u8"), quotients)
    if found > count:
        raise PayloadError("wrong_count", "payload", f"a section holds more than the {count} codes that belong")
    if quotients[:found].max(initial=0) > limit:
        raise PayloadError(code, "payload", "a number is beyond its limit")
    if found < count:
        raise PayloadError("wrong_count", "payload", f"a section holds {found} codes where {count} belong")
    if last // 8 + 1 != len(section):
        raise PayloadError("not_canonical", "payload", "a section goes on after its last code")
    return quotients


@compiled
def _unpack_unary(words: Any, quotients: Any) -> tuple[int, int]:
    """Return the number of ones and the last one's position; at most one beyond capacity."""
    found: Any = 0
    last: Any = np.int64(-1)
    for number in range(len(words)):
        word = words[number]  # bytes ascend from the lowest; the next lines reverse the bits of each byte
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
            place = 64 * number + np.int64(_BIT_INDEX[(lowest * np.uint64(_DE_BRUIJN)) >> np.uint64(58)])
            if found == len(quotients):
                return found + 1, last
            quotients[found] = min(place - last - 1, _MAX_QUOTIENT)
            found, last = found + 1, place
            word ^= lowest
    return found, last


@compiled
def join_codes(quotients: Any, remainders: Any, parameter: int) -> None:
    """Add a Rice code's quotients, with numbers below 256, to ``remainders`` in place."""
    for place in range(len(remainders)):
        remainders[place] |= np.uint8(quotients[place] << parameter)


def _padded(section: memoryview, size: int) -> Bytes:
    padded = np.zeros(size, np.uint8)
    padded[: len(section)] = np.frombuffer(section, np.uint8)
    return padded


def histogram(numbers: Numbers) -> NDArray[np.int64]:
    """Return how often each number from 0 to the largest occurs."""
    counts = np.zeros((4, int(numbers.max()) + 1 if len(numbers) else 0), np.int64)
    _count(numbers, counts)
    totals: NDArray[np.int64] = counts.sum(axis=0)
    return totals


@compiled
def _count(numbers: Any, counts: Any) -> None:
    """Count in four rows, so that equal numbers do not wait for each other's addition."""
    for place in range(len(numbers)):
        counts[place & 3, numbers[place]] += 1


def rice_sizes(counts: NDArray[np.int64], parameters: range) -> list[tuple[int, int]]:
    """Return the bytes of (quotients, remainders) by Rice parameter; ``counts[n]`` counts n."""
    entries = int(counts.sum())
    values = np.arange(len(counts))
    quotients = (int((counts * (values >> parameter)).sum()) for parameter in parameters)
    return [
        (packed_size(entries + total, 1), packed_size(entries, parameter))
        for parameter, total in zip(parameters, quotients, strict=True)
    ]
