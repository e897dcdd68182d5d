"""Exact arithmetic on payloads: integers, so that order, tree shape, machine and library change no bit. No torch.

A value x is the whole number nearest to x * 2**36. With magnitudes up to 64 that is at most 2**42, so 2**20 of them
add up within int64.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from training_gym.tensors import Vector

FRACTION_BITS = 36
MAX_MAGNITUDE = 64.0
SKETCH_SIZE = 1024

Fixed = NDArray[np.int64]

_BLOCK = 1 << 16
_LOW_BITS = 22
_SKETCH_LOW_BITS = 21
_ROW_BITS = 24
_DIRECTION_BITS = 20


def to_fixed(values: Vector) -> Fixed:
    """``values`` (at most ``MAX_MAGNITUDE`` in size) in units of 2**-36, each rounded once."""
    return np.rint(values.astype(np.float64) * 2.0**FRACTION_BITS).astype(np.int64)


def dot(left: Fixed, right: Fixed) -> int:
    """The exact inner product, in units of 2**-72.

    Numbers are split at 22 bits: products stay below 2**44 and those of a block within int64.
    """
    total, mask = 0, (1 << _LOW_BITS) - 1
    for start in range(0, len(left), _BLOCK):
        x, y = left[start : start + _BLOCK], right[start : start + _BLOCK]
        x_high, x_low, y_high, y_low = x >> _LOW_BITS, x & mask, y >> _LOW_BITS, y & mask
        total += int(x_high @ y_high) << (2 * _LOW_BITS)
        total += (int(x_high @ y_low) + int(x_low @ y_high)) << _LOW_BITS
        total += int(x_low @ y_low)
    return total


def sketch(indices: Fixed, values: Fixed, seed: bytes) -> Fixed:
    """The count-sketch [1024] of a sparse vector: each entry is added, with a random sign, to a random place.

    Distances between sketches estimate distances between vectors (Charikar, Chen and Farach-Colton, 2002). Whoever
    does not know ``seed`` cannot craft a vector that looks near another.
    """
    key = np.uint64(int.from_bytes(hashlib.sha256(b"zoo-sketch-1" + seed).digest()[:8], "big"))
    word = _mix(indices.astype(np.uint64) + key)
    places = (word >> np.uint64(54)).astype(np.int64)
    signed = np.where(word & np.uint64(1), -values, values)
    # Two sums of float64, each of whole numbers whose total stays below 2**53: exact in any order.
    high = np.bincount(places, (signed >> _SKETCH_LOW_BITS).astype(np.float64), SKETCH_SIZE)
    low = np.bincount(places, (signed & ((1 << _SKETCH_LOW_BITS) - 1)).astype(np.float64), SKETCH_SIZE)
    return (high.astype(np.int64) << _SKETCH_LOW_BITS) + low.astype(np.int64)


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
    words = words * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
