"""Exact arithmetic on payloads: integers, so that order, tree shape, machine and library change no bit. No torch.

A value x is the whole number nearest to x * 2**36. With magnitudes up to 64 that is at most 2**42, so 2**20 of them
add up within int64.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from training_gym.blocks import spans
from training_gym.tensors import Vector

FRACTION_BITS = 36
MAX_MAGNITUDE = 64.0
SKETCH_SIZE = 1024

Fixed = NDArray[np.int64]

_LOW_BITS = 22
_SKETCH_LOW_BITS = 21
_ROW_BITS = 24
_DIRECTION_BITS = 20


def whole(values: Vector) -> NDArray[np.float64]:
    """``values`` in units of 2**-36, each rounded once; whole numbers up to 2**42 are exact in float64."""
    numbers = values.astype(np.float64)
    numbers *= 2.0**FRACTION_BITS
    return np.rint(numbers, out=numbers)


def to_fixed(values: Vector) -> Fixed:
    """``values`` (at most ``MAX_MAGNITUDE`` in size) in units of 2**-36, each rounded once."""
    return whole(values).astype(np.int64)


def dot(left: Fixed, right: Fixed) -> int:
    """The exact inner product, in units of 2**-72.

    Numbers are split at 22 bits: products stay below 2**44 and those of a block within int64.
    """
    total = 0
    for span in spans(len(left)):
        x_high, x_low = _split(left[span])
        y_high, y_low = (x_high, x_low) if left is right else _split(right[span])
        crossed = int(x_high @ y_low)
        crossed += crossed if left is right else int(x_low @ y_high)
        total += (int(x_high @ y_high) << (2 * _LOW_BITS)) + (crossed << _LOW_BITS) + int(x_low @ y_low)
    return total


def _split(numbers: Fixed) -> tuple[Fixed, Fixed]:
    return numbers >> _LOW_BITS, numbers & ((1 << _LOW_BITS) - 1)


def sketch(indices: Fixed, numbers: NDArray[np.float64], seed: bytes) -> Fixed:
    """The count-sketch [1024] of at most 2**16 entries: each of the :func:`whole` ``numbers`` is added, with a
    random sign, to a random place.

    Distances between sketches estimate distances between vectors (Charikar, Chen and Farach-Colton, 2002). Whoever
    does not know ``seed`` cannot craft a vector that looks near another.
    """
    key = np.uint64(int.from_bytes(hashlib.sha256(b"zoo-sketch-1" + seed).digest()[:8], "big"))
    word = _mix(indices.view(np.uint64) + key)
    sign = word << np.uint64(63)
    signed = (sign ^ numbers.view(np.uint64)).view(np.float64)
    word >>= np.uint64(54)
    places = word.view(np.int64)
    # Sums of float64, of whole numbers whose total stays below 2**53: exact in any order.
    if len(signed) * max(signed.max(initial=0.0), -signed.min(initial=0.0)) < 2.0**53:
        return np.bincount(places, signed, SKETCH_SIZE).astype(np.int64)
    high = np.floor(signed * 2.0**-_SKETCH_LOW_BITS)
    low = signed - high * 2.0**_SKETCH_LOW_BITS
    sums = (np.bincount(places, half, SKETCH_SIZE).astype(np.int64) for half in (high, low))
    return (next(sums) << _SKETCH_LOW_BITS) + next(sums)


def squared_distances(sketches: Fixed) -> NDArray[np.int64]:
    """Squared distances [n, n] between the directions of the rows of ``sketches`` [n, 1024], in units of 2**-40.

    Rows become vectors of whole numbers of length 2**20, so no sum passes 2**53 and the float64 product is exact.
    """
    rows = np.zeros(sketches.shape, np.float64)
    for number, row in enumerate(sketches):
        short = row >> max(0, int(np.abs(row).max()).bit_length() - _ROW_BITS)
        if length := math.isqrt(int(short @ short)):
            rows[number] = (short << _DIRECTION_BITS) // length
    products = rows @ rows.T
    squares = np.diag(products)
    return (squares[:, None] + squares[None, :] - 2 * products).astype(np.int64)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    words *= np.uint64(0x9E3779B97F4A7C15)  # in place: the caller's sum is nobody else's
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
