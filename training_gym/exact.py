"""Exact arithmetic on payloads: integers, so that order, tree shape, machine and library change no bit. No torch.

A value x is the whole number nearest to x * 2**36. With magnitudes up to 64 that is at most 2**42, so 2**20 of them
add up within int64.
"""

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.blocks import BLOCK
from training_gym.compiled import compiled
from training_gym.compression.places import Offsets
from training_gym.config import CHUNK
from training_gym.tensors import Vector

FRACTION_BITS = 36
MAX_MAGNITUDE = 64.0
SKETCH_SIZE = 1024

Fixed = NDArray[np.int64]

_LOW_BITS = 22
_ROW_BITS = 24
_DIRECTION_BITS = 20
_ONE = 2.0**FRACTION_BITS


def to_fixed(values: Vector) -> Fixed:
    """``values`` (at most ``MAX_MAGNITUDE`` in size) in units of 2**-36, each rounded once."""
    numbers = values.astype(np.float64)
    numbers *= _ONE
    return np.rint(numbers, out=numbers).astype(np.int64)


def dot(left: Vector, right: Vector) -> int:
    """The exact inner product of two vectors in fixed point (:func:`to_fixed`), in units of 2**-72."""
    sums = np.zeros((-(-len(left) // BLOCK), 3), np.int64)
    _dot(left, right, BLOCK, sums)
    high, crossed, low = (sum(column) for column in sums.T.tolist())
    return (high << (2 * _LOW_BITS)) + (crossed << _LOW_BITS) + low


@compiled
def _dot(left: Any, right: Any, block: int, sums: Any) -> None:
    """Numbers are split at 22 bits: products stay below 2**44, and those of a block within int64."""
    below = (1 << _LOW_BITS) - 1
    for row in range(len(sums)):
        high: Any = 0
        crossed: Any = 0
        low: Any = 0
        for place in range(row * block, min(row * block + block, len(left))):
            x = np.int64(np.rint(np.float64(left[place]) * _ONE))
            y = np.int64(np.rint(np.float64(right[place]) * _ONE))
            x_high, x_low, y_high, y_low = x >> _LOW_BITS, x & below, y >> _LOW_BITS, y & below
            high += x_high * y_high
            crossed += x_high * y_low + x_low * y_high
            low += x_low * y_low
        sums[row, 0], sums[row, 1], sums[row, 2] = high, crossed, low


def sketch(values: Vector, offsets: Offsets, top_k: int, seed: bytes) -> Fixed:
    """The count-sketch [1024] of a payload's entries: each of ``values`` in fixed point is added, with a random sign,
    to a random place.

    Distances between sketches estimate distances between vectors (Charikar, Chen and Farach-Colton, 2002). Whoever
    does not know ``seed`` cannot craft a vector that looks near another.
    """
    key = int.from_bytes(hashlib.sha256(b"zoo-sketch-1" + seed).digest()[:8], "big")
    sketched = np.zeros(SKETCH_SIZE, np.int64)
    _sketch(values, offsets, top_k, np.uint64(key), sketched)
    return sketched


@compiled
def _sketch(values: Any, offsets: Any, top_k: int, key: Any, sketched: Any) -> None:
    """The hash of a place is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    start = np.uint64(0)
    for first in range(0, len(values), top_k):
        for entry in range(first, min(first + top_k, len(values))):
            offset = np.uint64(offsets[entry]) if len(offsets) else np.uint64(entry - first)
            word = (start + offset + key) * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
            number = np.int64(np.rint(np.float64(values[entry]) * _ONE))
            sketched[word >> np.uint64(54)] += -number if word & np.uint64(1) else number
        start += np.uint64(CHUNK)


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
