"""Work on vectors in blocks that fit the processor's cache, with a few threads. No torch.

Blocks are independent or combined by integer sums, so neither their size nor the number of threads changes a bit.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

BLOCK = 1 << 15
"""Entries processed at a time: a dozen temporaries of this size fit in the second-level cache."""
THREADS = min(4, os.cpu_count() or 1)
_MIN_PER_THREAD = 1 << 18  # with fewer entries a thread costs more than it saves
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


# glibc returns freed memory of this size to the system. Each block's temporaries would then be mapped and zeroed again,
# which costs several times their arithmetic. Freeing one larger mapping raises that limit.
np.empty(16 << 20, np.uint8)


def spans(size: int, start: int = 0) -> Iterator[slice]:
    """Yield ``start`` to ``size`` in slices of ``BLOCK``."""
    for first in range(start, size, BLOCK):
        yield slice(first, min(first + BLOCK, size))


def parts(size: int, multiple: int = BLOCK) -> list[slice]:
    """Return ``size`` in about equal slices by thread, of ``multiple`` except the last."""
    count = max(1, min(THREADS, size // _MIN_PER_THREAD))
    length = -(-size // count // multiple) * multiple or multiple
    return [slice(first, min(first + length, size)) for first in range(0, size, length)]


def map_in_threads(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None = None
) -> list[_Result]:
    """Return ``work`` of each item, in order; numpy and hashes release the interpreter's lock."""
    listed = list(items)
    results: dict[int, _Result] = {}
    left = iter(range(len(listed)))  # shared by all threads, which take the next item without a queue

    def take() -> None:
        for number in left:
            results[number] = work(listed[number])

    others = min(threads or THREADS, len(listed)) - 1
    if others < 1:
        take()
    else:
        with ThreadPoolExecutor(others) as pool:
            taking = [pool.submit(take) for _ in range(others)]
            take()
            for future in taking:
                future.result()
    return [results[number] for number in range(len(listed))]
