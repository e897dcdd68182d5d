"""Order of samples over epochs, shards and slots."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.data.order import GROUP, SampleOrder, permuted, position_of

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(any)


@given(size=st.integers(1, 3000), key=st.binary(min_size=1, max_size=32))
def test_permutation_reaches_each_place_once(size: int, key: bytes) -> None:
    assert sorted(permuted(index, size, key) for index in range(size)) == list(range(size))


@given(counts=COUNTS, seed=st.integers(0, 2**53 - 1), epoch=st.integers(0, 3))
def test_each_sample_is_read_once_an_epoch(counts: list[int], seed: int, epoch: int) -> None:
    order = SampleOrder(counts, seed)
    found = [order.place(epoch * order.size + position) for position in range(order.size)]
    assert sorted(found) == [(shard, sample) for shard, count in enumerate(counts) for sample in range(count)]


@given(counts=COUNTS, slots=st.integers(1, 9), seed=st.integers(0, 9))
def test_slots_read_disjoint_samples_of_an_epoch(counts: list[int], slots: int, seed: int) -> None:
    order = SampleOrder(counts, seed)
    own = order.size // slots
    read = Counter(order.place(position_of(slot, slots, step)) for slot in range(slots) for step in range(own))
    assert len(read) == own * slots


def test_epochs_and_seeds_differ() -> None:
    counts = [100] * 20
    orders = [
        [SampleOrder(counts, seed).place(epoch * 2000 + n) for n in range(50)] for seed in (0, 1) for epoch in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 4


def test_consecutive_samples_come_from_few_shards() -> None:
    order = SampleOrder([1000] * 100, seed=3)
    assert len({order.place(position)[0] for position in range(1000)}) == GROUP


def test_order_is_the_same_everywhere() -> None:
    order = SampleOrder([5, 0, 7, 9], seed=11)
    assert [order.place(position) for position in (0, 1, 2, 20, 21, 22)] == [
        (0, 2),
        (3, 4),
        (3, 2),
        (0, 1),
        (3, 2),
        (2, 3),
    ]


def test_empty_split_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample"):
        SampleOrder([0, 0], 1)
