"""Vectors worked on in pieces that fit the processor's cache, with a few threads. No torch.

Pieces are independent, or joined by sums of integers, so neither their size nor the number of threads changes a bit.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

BLOCK = 1 << 15
"""Entries worked on at a time: a dozen temporaries of them stay in the second-level cache."""


THREADS = min(4, os.cpu_count() or 1)


_LEAST = 1 << 18  # entries below which a thread costs more than it brings


_Item = TypeVar("_Item")


_Result = TypeVar("_Result")


# glibc hands freed memory of this order back to the system, and every block's temporaries would be mapped and zeroed
# anew, several times their arithmetic. It stops doing so for the size of the largest mapping that was ever freed.
np.empty(16 << 20, np.uint8)


def spans(size: int, start: int = 0) -> Iterator[slice]:
    """``start`` to ``size`` in slices of ``BLOCK``."""
    for first in range(start, size, BLOCK):
        yield slice(first, min(first + BLOCK, size))


def parts(size: int, multiple: int = BLOCK) -> list[slice]:
    """The whole of ``size`` in about equal slices, one for each thread; all but the last are of whole ``multiple``."""
    count = max(1, min(THREADS, size // _LEAST))
    length = -(-size // count // multiple) * multiple or multiple
    return [slice(first, min(first + length, size)) for first in range(0, size, length)]


def in_threads(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """``work`` of each item, in the items' order; numpy leaves the interpreter's lock while it computes."""
    listed = list(items)
    results: dict[int, _Result] = {}
    left = iter(range(len(listed)))  # threads share it: an item costs one of them a look at it and nobody a hand-over

    def take() -> None:
        for number in left:
            results[number] = work(listed[number])

    others = min(THREADS, len(listed)) - 1
    if others < 1:
        take()
    else:
        with ThreadPoolExecutor(others) as pool:
            taking = [pool.submit(take) for _ in range(others)]
            take()
            for future in taking:
                future.result()
    return [results[number] for number in range(len(listed))]
