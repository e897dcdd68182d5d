"""Order of samples by seed, slot and step: each sample once an epoch. No torch.

An epoch shuffles the shards and cuts them into groups of :data:`GROUP`. Samples are permuted within their group, so
that a unit reads few shards of a dataset of any size. Slots take turns: what one reads, no other reads in that epoch.
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

GROUP = 8
"""Shards whose samples are mixed."""
_ROUNDS = 4


def permuted(index: int, size: int, key: bytes) -> int:
    """Return the image of ``index`` under a permutation of ``range(size)`` that ``key`` chooses.

    A Feistel network (Luby and Rackoff, 1988) permutes the next power of four. Images beyond ``size`` are mapped again
    until one is inside (Black and Rogaway, 2002).
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for round_ in range(_ROUNDS):
            word = hashlib.blake2b(struct.pack(">BQ", round_, right), key=key, digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(word, "big") & mask)
        index = left << half | right
        if index < size:
            return index


class SampleOrder:
    """Order of the samples of a split.

    Attributes:
        size: samples of an epoch.
    """

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        """Order shards of ``counts`` samples each. Raises ValueError: there is no sample."""
        self._counts, self._seed, self.size = tuple(counts), seed, sum(counts)
        if not self.size:
            raise ValueError("counts has no sample; expected at least one")

    def place(self, position: int) -> tuple[int, int]:
        """Return shard and sample at a ``position`` of the endless order of epochs."""
        epoch, rest = divmod(position, self.size)
        shards, starts = _shuffled(self._counts, self._seed, epoch)
        first = (bisect_right(starts, rest) - 1) // GROUP * GROUP
        start, end = starts[first], starts[min(first + GROUP, len(shards))]
        key = _key(self._seed, epoch, first)
        rest = start + permuted(rest - start, end - start, key)
        shard = bisect_right(starts, rest) - 1
        return shards[shard], rest - starts[shard]

    def in_order(self, index: int) -> tuple[int, int]:
        """Return shard and sample at an ``index`` of the split as it is stored."""
        for shard, count in enumerate(self._counts):
            if index < count:
                return shard, index
            index -= count
        raise IndexError("index is beyond the split")


def position_of(slot: int, slots: int, samples: int) -> int:
    """Return the position that ``slot`` of ``slots`` reads after ``samples`` of its own."""
    return samples * slots + slot


@lru_cache(maxsize=4)
def _shuffled(counts: tuple[int, ...], seed: int, epoch: int) -> tuple[list[int], list[int]]:
    """Return the epoch's order of shards, and the place where each starts, with the end."""
    key = _key(seed, epoch, 1 << 63)
    shards = [shard for shard in (permuted(index, len(counts), key) for index in range(len(counts))) if counts[shard]]
    return shards, list(accumulate((counts[shard] for shard in shards), initial=0))


def _key(seed: int, epoch: int, group: int) -> bytes:
    return hashlib.sha256(b"zoo-order-2" + struct.pack(">QQQ", seed, epoch, group)).digest()
