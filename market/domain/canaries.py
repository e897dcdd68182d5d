"""Rules of canaries: planted segments whose claim is false, so that nobody can know their result without replaying."""

from collections import Counter
from collections.abc import Sequence

LEAST_VERIFIERS = 3
"""Live verifiers of a class below which none is planted: two replay the canary, and another the sample beside it."""

_LEAD = 2


def answer(results: Sequence[str], *, nobody_left: bool = False) -> str | None:
    """The right end leaf of a canary, from what different verifiers computed, in any order; None: not known yet.

    There is no provider whose claim is right or wrong, so only verifiers that agree with each other can say what is
    right. Two who agree settle it while nobody dissents. Who dissents is wrong beyond doubt if they are two more.

    Args:
        nobody_left: there is no verifier left to ask. Then a lead of one is enough, as in :func:`verification.verdict`.
    """
    (leaf, most), (_, next_most) = [*Counter(results).most_common(2), ("", 0), ("", 0)][:2]
    return leaf if most >= 2 and most - next_most >= (1 if nobody_left else _LEAD) else None
