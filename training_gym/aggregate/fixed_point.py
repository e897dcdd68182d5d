"""Exact integer arithmetic on payloads; order or machine change no bit. No torch.

A value x is represented by the integer nearest to x * 2**36. With magnitudes up to 64 that is at most 2**42, so 2**20
of them add up within int64.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.compress.codes import Units, add_four_to_places, add_to_places, hash_places, multiply
from training_gym.compress.payload_format import MAX_MAGNITUDE, Payload
from training_gym.compress.positions import EVERYWHERE
from training_gym.model.tensors import Vector
from training_gym.runtime.compiled import compiled
from training_gym.runtime.threads import BLOCK, map_in_threads, parts
from training_gym.spec.config import CHUNK

FRACTION_BITS = 36
SKETCH_SIZE = 1024
Fixed = NDArray[np.int64]
_LOW_BITS = 22
_ROW_BITS = 24
_DIRECTION_BITS = 20
_ONE = 2.0**FRACTION_BITS
_HASHED = 64
"""Chunks whose positions are hashed at a time, once for all payloads; two bytes per position fit in the cache."""
_ALL_OFFSETS = np.tile(np.arange(CHUNK, dtype=np.uint16), _HASHED)


def scaled(values: Vector, scale: float) -> Fixed:
    """Return ``values`` times ``scale``, each rounded once to an integer."""
    numbers = values.astype(np.float64)
    numbers *= scale
    return np.rint(numbers, out=numbers).astype(np.int64)


def units_of(payload: Payload, scale: float = _ONE) -> Units:
    """Return the :func:`scaled` magnitude of each level of an admitted payload."""
    return scaled(np.minimum(payload.meaning, np.float32(MAX_MAGNITUDE)), scale)


def dot(left: Vector, right: Vector) -> int:
    """Return the exact product of vectors up to ``MAX_MAGNITUDE``, in units of 2**-72."""
    sums = np.zeros((-(-len(left) // BLOCK), 3), np.int64)

    def add(part: slice) -> None:
        _dot(left[part], right[part], BLOCK, sums[part.start // BLOCK : -(-part.stop // BLOCK)])

    map_in_threads(add, parts(len(left)))
    return _joined(sums)


def squared_norm(payload: Payload) -> int:
    """Return the exact inner product of a payload's vector with itself, in units of 2**-72."""
    units = units_of(payload)
    high, low = units >> _LOW_BITS, units & ((1 << _LOW_BITS) - 1)
    parts_of_squares = (high * high, 2 * high * low, low * low)
    return _joined(np.stack([(part * payload.counts).sum(axis=1) for part in parts_of_squares], axis=1))


def product(payload: Payload, vector: Vector) -> int:
    """Return the exact inner product of a payload's vector with another one, in units of 2**-72."""
    sums, chunks, units = np.zeros((len(payload.meaning), 3), np.int64), payload.chunks, units_of(payload)
    multiply(chunks.starts, chunks.entries, payload.codes, payload.offsets, units, vector, _ONE, _LOW_BITS, sums)
    return _joined(sums)


def _joined(sums: Fixed) -> int:
    """Return the number summed in columns, from factors split at 22 bits."""
    high, crossed, low = (int(sum(column)) for column in sums.T.tolist())
    return (high << (2 * _LOW_BITS)) + (crossed << _LOW_BITS) + low


@compiled
def _dot(left: Any, right: Any, block: int, sums: Any) -> None:
    """Sum products split at 22 bits: each stays below 2**44, and those of a block within int64."""
    below = (1 << _LOW_BITS) - 1
    for row in range(len(sums)):
        high: Any = 0
        crossed: Any = 0
        low: Any = 0
        first, second = left[row * block : (row + 1) * block], right[row * block : (row + 1) * block]
        for place in range(len(first)):
            x = np.int64(np.rint(np.float64(first[place]) * _ONE))
            y = np.int64(np.rint(np.float64(second[place]) * _ONE))
            x_high, x_low, y_high, y_low = x >> _LOW_BITS, x & below, y >> _LOW_BITS, y & below
            high += x_high * y_high
            crossed += x_high * y_low + x_low * y_high
            low += x_low * y_low
        sums[row, 0], sums[row, 1], sums[row, 2] = high, crossed, low


def sketches(payloads: Sequence[Payload], seed: bytes) -> list[Fixed]:
    """Return the count-sketch [1024] of each payload of a round.

    A sketch adds each value in fixed point, with a random sign, to a random position. Distances between sketches
    estimate distances between vectors (Charikar, Chen and Farach-Colton, 2002). Without ``seed`` no provider can craft
    a vector whose sketch is near another's.
    """
    key = int.from_bytes(hashlib.sha256(b"zoo-sketch-1" + seed).digest()[:8], "big")
    units = [units_of(payload) for payload in payloads]
    fours = _fours(payloads)
    others = sorted(set(range(len(payloads))) - {number for four in fours for number in four})

    def sketch(part: slice) -> Fixed:
        """Sum positive and negative values at each sketch position, for a part of the vector."""
        sums = np.zeros((len(payloads), 2 * SKETCH_SIZE), np.int64)
        sums_of_fours = np.zeros((len(fours), 2 * SKETCH_SIZE, 4), np.int64)
        for first in range(part.start, part.stop, _HASHED):
            some = slice(first, min(first + _HASHED, part.stop))
            words = _hash_all(starts[first], starts[some.stop], key) if dense else EVERYWHERE
            for codes, four_units, rows in zip(codes_of_fours, units_of_fours, sums_of_fours, strict=True):
                add_four_to_places(words, starts[first : some.stop + 1], codes, four_units[:, some], rows)
            for number in others:
                _add(payloads[number], units[number], some, words, key, sums[number])
        for four, rows in zip(fours, sums_of_fours, strict=True):
            sums[four] = rows.T
        return sums

    codes_of_fours = [tuple(payloads[number].codes for number in four) for four in fours]
    units_of_fours = [np.stack([units[number] for number in four]) for four in fours]
    dense = any(not len(payload.offsets) for payload in payloads)
    starts = payloads[0].chunks.starts if payloads else np.zeros(1, np.int64)
    shares = payloads[0].chunks.cut(parts(payloads[0].size)) if payloads else []
    total = sum(map_in_threads(sketch, shares), np.zeros((len(payloads), 2 * SKETCH_SIZE), np.int64))
    return list(total[:, 0::2] - total[:, 1::2])


def _fours(payloads: Sequence[Payload]) -> list[list[int]]:
    """Return groups of four two-level payloads with all entries, to sketch together."""
    shapes = [(payload.chunks.top_k, payload.meaning.shape[1]) for payload in payloads]
    simple = [number for number, shape in enumerate(shapes) if shape == (CHUNK, 2)]
    return [simple[start : start + 4] for start in range(0, len(simple) - 3, 4)]


def _hash_all(start: int, stop: int, key: int) -> NDArray[np.uint16]:
    """Return the hash words of the positions from ``start`` to ``stop``."""
    starts = np.arange(start, stop, CHUNK)
    return hash_places(starts, np.append(starts, stop) - start, _ALL_OFFSETS[: stop - start], key)


def _add(payload: Payload, units: Units, part: slice, words: NDArray[np.uint16], key: int, sums: Fixed) -> None:
    """Add a payload's chunks ``part`` to a sketch; ``words`` hash all positions in them."""
    entries = payload.chunks.entries[part.start : part.stop + 1]
    if len(payload.offsets):
        starts, offsets = payload.chunks.starts[part], payload.offsets[entries[0] : entries[-1]]
        words = hash_places(starts, entries, offsets, key)
    add_to_places(words, entries, payload.codes, units[part], sums)


def squared_distances(sketches: Fixed) -> NDArray[np.int64]:
    """Return squared distances [n, n] of the directions of ``sketches`` [n, 1024], in 2**-40."""
    products = direction_products(sketches)
    squares = np.diag(products)
    return squares[:, None] + squares[None, :] - 2 * products


def direction_products(sketches: Fixed) -> NDArray[np.int64]:
    """Return the inner products [n, n] of the directions of ``sketches`` [n, 1024], in 2**-40.

    Rows become integer vectors of length 2**20, so no sum exceeds 2**53 and the float64 product is exact.
    """
    rows = np.zeros(sketches.shape, np.float64)
    for number, row in enumerate(sketches):
        short = row >> max(0, int(np.abs(row).max()).bit_length() - _ROW_BITS)
        if length := math.isqrt(int(short @ short)):
            rows[number] = (short << _DIRECTION_BITS) // length
    return (rows @ rows.T).astype(np.int64)
