"""Rules of canaries: planted segments whose claim is false, so that nobody can know their result without replaying."""

from collections import Counter
from collections.abc import Sequence

LEAST_VERIFIERS = 3
"""Live verifiers of a class below which none is planted: two replay the canary, and another the sample beside it."""

_LEAD = 2


def is_due(lot: int, segment: int, canary_bps: int) -> bool:
    """Whether a canary is to be planted on a segment that was drawn.

    Never on the first one, which starts from public files that cannot be altered.

    Args:
        lot: a secret number from 0 to 9,999.
        canary_bps: share of the drawn segments that have one, in basis points.
    """
    return segment > 0 and lot < canary_bps


def answer(results: Sequence[str], claimed_leaf: str, *, nobody_left: bool = False) -> str | None:
    """The right end leaf of a canary, from what different verifiers computed, in any order; None: not known yet.

    What the unit's provider has claimed is wrong, since it is the end of another start: whoever answers that has it
    from somewhere, and has no voice. Of the others only who agree with each other can say what is right. Two who agree
    settle it while nobody dissents. Who dissents is wrong beyond doubt if they are two more.

    Args:
        claimed_leaf: the claimed end of the segment that the canary was planted on.
        nobody_left: there is no verifier left to ask. Then a lead of one is enough, as in :func:`verification.verdict`.
    """
    computed = Counter(result for result in results if result != claimed_leaf)
    (leaf, most), (_, next_most) = [*computed.most_common(2), ("", 0), ("", 0)][:2]
    return leaf if most >= 2 and most - next_most >= (1 if nobody_left else _LEAD) else None
