"""Canonical scales: the one pair among those with equal magnitudes. No torch.

If the lowest or the highest level is unused, several pairs (low, high) express the same magnitudes with other levels.
With v the least and w the largest used magnitude, the canonical pair is the first that expresses all of them exactly:

- ``low`` is the largest bfloat16 not above v, or one or two below it; the highest comes first;
- ``high`` is the smallest bfloat16 not below w, one below it, or up to three above; with each ``low`` the lowest first.

The pair of ``quantise`` is among them. It rounds ``low`` down from the smallest value sent, so v is less than two
bfloat16 steps above it. The same holds for ``high``, where steps may halve below a power of two.
"""

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.compress.codes import LEVEL, Codes, Counts
from training_gym.compress.positions import Integers
from training_gym.compress.quantise import LARGEST_SCALE, Meaning, Scales, bfloat_above, bfloat_below, grid
from training_gym.model.tensors import Vector

_PAIRS = tuple(product((0, -1, -2), (-1, 0, 1, 2, 3)))
_SIGN = np.uint8(0x80)
_Flags = NDArray[np.bool_]


def narrowest(low: Scales, high: Scales, meaning: Meaning, counts: Counts) -> tuple[Scales, Scales]:
    """Return the canonical scales of each chunk [C], given a pair that expresses its magnitudes.

    ``meaning`` and ``counts`` are those of ``payload_format.Payload``; the used magnitudes must be finite.
    """
    chunks = np.flatnonzero((counts[:, 0] == 0) | (counts[:, -1] == 0))  # pairs with both ends in use are unique
    if not len(chunks):
        return low, high
    right_low, right_high = low.copy(), high.copy()
    right_low[chunks], right_high[chunks] = _first(meaning[chunks], counts[chunks] > 0)
    return right_low, right_high


def canonical_codes(codes: Codes, entries: Integers, meaning: Meaning, low: Scales, high: Scales) -> Codes:
    """Return ``codes`` [E] of the same values under the scales of :func:`narrowest`."""
    top = meaning.shape[1] - 1
    levels = np.zeros((len(meaning), LEVEL + 1), np.uint8)
    levels[:, : top + 1] = _levels(meaning, *grid(low, high, top), top)
    changed = codes.copy()
    for chunk in range(len(meaning)):
        part = slice(entries[chunk], entries[chunk + 1])
        changed[part] = levels[chunk, codes[part] & LEVEL] | (codes[part] & _SIGN)
    return changed


def _first(meaning: Meaning, used: _Flags) -> tuple[Scales, Scales]:
    """Return each row's first pair that expresses the used magnitudes, else the first."""
    rows, top = np.arange(len(meaning)), meaning.shape[1] - 1
    ends = np.stack([meaning[rows, used.argmax(axis=1)], meaning[rows, top - used[:, ::-1].argmax(axis=1)]], axis=1)
    below, above = bfloat_below(ends[:, 0]).astype(np.int64), bfloat_above(ends[:, 1]).astype(np.int64)
    pairs = [_pair(below + lower, above + higher) for lower, higher in _PAIRS]
    low, high = pairs[0][0].copy(), pairs[0][1].copy()
    for lower, upper in pairs:
        ends_fit = _represents(lower[rows], upper[rows], ends[rows], np.True_, top)
        near = rows[ends_fit]  # a cheap test that leaves few wrong pairs
        found = near[_represents(lower[near], upper[near], meaning[near], used[near], top)]
        low[found], high[found] = lower[found], upper[found]
        rows = np.setdiff1d(rows, found, assume_unique=True)
    return low, high


def _pair(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[Scales, Scales]:
    """Return the pair as scales, clipped to 0 <= low <= high and finite."""
    bottom = np.maximum(low, 0)
    return bottom.astype(np.uint16), np.clip(high, bottom, LARGEST_SCALE).astype(np.uint16)


def _represents(low: Scales, high: Scales, magnitudes: Meaning, used: Any, levels_above: int) -> _Flags:
    """Return rows whose scales have levels equal to the ``used`` ``magnitudes``."""
    bottom, step = grid(low, high, levels_above)
    with np.errstate(over="ignore"):  # of unused magnitudes
        meant = step[:, None] * _levels(magnitudes, bottom, step, levels_above).astype(np.float32)
        meant += bottom[:, None]
    fits: _Flags = ((meant == magnitudes) | ~used).all(axis=1)
    return fits


def _levels(magnitudes: Meaning, bottom: Vector, step: Vector, levels_above: int) -> Codes:
    """Return the level nearest to each of a row's magnitudes; 0 if the row's step is 0."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        levels = np.rint((magnitudes - bottom[:, None]) / step[:, None])
    return np.where(step[:, None] > 0, np.clip(levels, 0, levels_above), 0).astype(np.uint8)
