"""Rules of segments that are posed once more, to see whether verifiers replay.

Another segment than the first is posed from an altered state: a canary, whose claim is false. A first one starts from
public files, which nobody can alter unseen; it is posed to a second verifier as it is. Whoever replays a first segment
is asked for the digest of an inner state too, which no claim has.
"""

from collections import Counter
from collections.abc import Sequence

LEAST_VERIFIERS = 3
"""Live verifiers of a class below which no canary is planted: two replay it, and another the sample beside it."""


LEAST_FOR_SECOND_OPINION = 4
"""Live verifiers of a class below which none is asked for: who is alone against others is wrong if these are three."""


_LEAD = 2


_LAST_PART = 8


def is_due(lot: int, canary_bps: int) -> bool:
    """Whether a segment that was drawn is posed once more.

    Args:
        lot: a secret number from 0 to 9,999.
        canary_bps: share of the drawn segments of which that is so, in basis points.
    """
    return lot < canary_bps


def inner_step(lot: int, segment_steps: int, *, end_is_shown: bool) -> int | None:
    """The step of a first segment, from 1, after which the state is asked for; None: there is none.

    The last one, so that nothing is left to who stops there. Where others than the provider get the state after it, a
    lot among the last eighth of the steps before.

    Args:
        lot: a secret number of at least 0.
        end_is_shown: to verifiers of the second segment, or with what the unit hands on.
    """
    if not end_is_shown:
        return segment_steps
    if segment_steps < 2:
        return None
    return segment_steps - 1 - lot % max(1, segment_steps // _LAST_PART)


def agreed_digest(inner_digests: Sequence[str]) -> str | None:
    """The inner digest of a first segment, from those that came to the claimed end; None: there is doubt, or nobody.

    No environment comes to the right end over a wrong inner state: whoever has the end and another digest has copied
    the end, if at least two more have this one.
    """
    found = set(inner_digests)
    return found.pop() if len(found) == 1 else answer(inner_digests)


def is_settled(inner_digests: Sequence[str], *, second_opinion: bool) -> bool:
    """Whether a claimed end can pass, as far as those go who came to it: they agree, or one of them is known to have
    copied.

    Args:
        second_opinion: it takes two at least.
    """
    return agreed_digest(inner_digests) is not None and len(inner_digests) >= (2 if second_opinion else 1)


def answer(results: Sequence[str], claimed_leaf: str | None = None, *, nobody_left: bool = False) -> str | None:
    """What is right, from what different verifiers computed, in any order; None: not known yet.

    What the provider of a canary's unit has claimed is wrong, since it is the end of another start: whoever answers
    that has it from somewhere, and has no voice. Of the others only who agree with each other can say what is right.
    Two who agree settle it while nobody dissents. Who dissents is wrong beyond doubt if they are two more.

    Args:
        claimed_leaf: the claimed end of the segment that a canary was planted on.
        nobody_left: there is no verifier left to ask. Then a lead of one is enough, as in :func:`verification.verdict`.
    """
    computed = Counter(result for result in results if result != claimed_leaf)
    (leaf, most), (_, next_most) = [*computed.most_common(2), ("", 0), ("", 0)][:2]
    return leaf if most >= 2 and most - next_most >= (1 if nobody_left else _LEAD) else None
