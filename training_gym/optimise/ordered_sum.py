"""Sums along one fixed binary tree: neighbours first, then neighbouring sums, and so on.

Floating-point addition is not associative, so the order of a sum decides its last bits. This tree belongs to the job.
Its sum has the same bits in one process and in several that each add a subtree or a slice.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def tree_sum(rows: Tensor) -> Tensor:
    """Return the sum [n] of ``rows`` [k, n] along the tree. Raises ValueError: no rows."""
    if not len(rows):
        raise ValueError("rows is empty; expected at least one")
    while len(rows) > 1:
        pairs = len(rows) // 2
        rows = torch.cat([rows[: 2 * pairs : 2] + rows[1 : 2 * pairs : 2], rows[2 * pairs :]])
    return rows[0]


class TreeSum:
    """:func:`tree_sum` of lists of tensors that come one after the other.

    Their number is a power of two. It holds at most one partial sum for each level of the tree. It adds into the
    tensors that it was given.
    """

    def __init__(self) -> None:
        self._partial: list[tuple[int, Sequence[Tensor]]] = []

    def add(self, terms: Sequence[Tensor]) -> None:
        """Add the next list of tensors; all lists have equal shapes."""
        level = 0
        while self._partial and self._partial[-1][0] == level:
            _, earlier = self._partial.pop()
            for one, other in zip(earlier, terms, strict=True):
                one.add_(other)
            terms, level = earlier, level + 1
        self._partial.append((level, terms))

    def total(self) -> Sequence[Tensor]:
        """Return the sum. Raises ValueError: the number of lists is no power of two."""
        if len(self._partial) != 1:
            raise ValueError(f"{len(self._partial)} partial sums are left; expected a power of two of terms")
        return self._partial[0][1]
