"""Samples of a dataset as rows of tokens with targets, and their batches. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training_gym.data.shards import ShardFile

IGNORED = -100
"""Target without effect on the loss."""
Integers = NDArray[np.int64]


class Row(NamedTuple):
    """One sequence of T tokens, at least one.

    Attributes:
        inputs: tokens [T].
        targets: the token after each [T], or ``IGNORED``.
        positions: place of each token in its document [T], from 0.
    """

    inputs: Integers
    targets: Integers
    positions: Integers


Sample = tuple[Row, ...]
"""A sequence of text or a conversation as one row; a preferred and another answer as two."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of equal length, R of T tokens.

    Attributes:
        inputs: tokens [R, T], 0 behind the end of a row.
        targets: next tokens [R, T], or ``IGNORED``.
        positions: [R, T] if a row has several documents, whose borders attention respects; else None.
        count: values of which the loss is the mean, targets or pairs of answers.
    """

    inputs: Integers
    targets: Integers
    positions: Integers | None
    count: int


def text_row(shard: ShardFile, start: int, length: int, separator: int | None) -> Row:
    """Return the row of ``length`` inputs from the token ``start``.

    After a ``separator`` positions begin again, and the first token of the next document is not a target.
    """
    tokens = shard.tokens[start : start + length + 1].astype(np.int64)
    inputs, targets, places = tokens[:-1], tokens[1:].copy(), np.arange(length)
    if separator is None:
        return Row(inputs, targets, places)
    ends = inputs == separator
    targets[ends] = IGNORED
    begins = np.zeros(length, np.int64)
    begins[1:] = np.where(ends[:-1], places[1:], 0)
    return Row(inputs, targets, places - np.maximum.accumulate(begins))


def masked_row(shard: ShardFile, row: int, length: int) -> Row:
    """Return a conversation or an answer with its prompt, cut to ``length`` inputs."""
    start, end = (int(offset) for offset in shard.offsets[row : row + 2])
    end = min(end, start + length + 1)
    tokens = shard.tokens[start:end].astype(np.int64)
    targets = np.where(shard.targets(start, end)[1:], tokens[1:], IGNORED)
    return Row(tokens[:-1], targets, np.arange(len(targets)))


def count_of(samples: Sequence[Sample]) -> int:
    """Return the values of which the loss is the mean: pairs of answers, or else targets."""
    if len(samples[0]) > 1:
        return len(samples)
    return sum(int((row.targets != IGNORED).sum()) for sample in samples for row in sample)


def collate(samples: Sequence[Sample]) -> Batch:
    """Return the batch of at least one sample, padded to the longest row."""
    rows = [row for sample in samples for row in sample]
    shape = len(rows), max(len(row.inputs) for row in rows)
    inputs, targets = np.zeros(shape, np.int64), np.full(shape, IGNORED, np.int64)
    for number, row in enumerate(rows):
        inputs[number, : len(row.inputs)] = row.inputs
        targets[number, : len(row.inputs)] = row.targets
    apart = any((row.positions[1:] == 0).any() for row in rows)
    return Batch(inputs, targets, np.stack([row.positions for row in rows]) if apart else None, count_of(samples))
