"""Rules of canary segments and duplicate replays, which detect verifiers that copy. Pure.

A canary repeats a segment other than the first from an altered start state, so the provider's claim is wrong for it.
A first segment starts from public files, so an alteration would be visible: a second verifier replays it unaltered.
Replays of a first segment also return the digest of an inner state, which no claim contains.
"""

from collections import Counter
from collections.abc import Sequence

MIN_VERIFIERS = 3
"""Live verifiers of a class that a canary needs: two replay it, and another one replays the sample."""

MIN_VERIFIERS_FOR_DUPLICATE = 4
"""Live verifiers of a class that a duplicate replay needs: one is outvoted only by three others."""

_LEAD = 2
_LAST_PART = 8


def is_due(draw: int, canary_bps: int) -> bool:
    """Return True if a sampled segment gets a canary or duplicate replay.

    Args:
        draw: secret random number from 0 to 9,999.
        canary_bps: share of the sampled segments, in basis points.
    """
    return draw < canary_bps


def inner_step(draw: int, segment_steps: int, *, is_end_revealed: bool) -> int | None:
    """Return the step of a first segment after which the inner state is requested, or None.

    It is the last step, so that the verifier must compute the whole segment. If other nodes get the state after the
    last step, it is a random one among the eighth of the steps before.

    Args:
        draw: secret random number of at least 0.
        is_end_revealed: verifiers of the second segment or the replica's next node get the end state.
    """
    if not is_end_revealed:
        return segment_steps
    if segment_steps < 2:
        return None
    return segment_steps - 1 - draw % max(1, segment_steps // _LAST_PART)


def agreed_digest(inner_digests: Sequence[str]) -> str | None:
    """Return a first segment's inner digest from the matching replays; None if unclear.

    No environment reaches the right end over a wrong inner state. A verifier with the right end and another digest has
    copied the end, if at least two more verifiers have this digest.
    """
    found = set(inner_digests)
    return found.pop() if len(found) == 1 else answer(inner_digests)


def is_claim_confirmed(inner_digests: Sequence[str], *, needs_duplicate: bool) -> bool:
    """Return True if the inner digests of matching replays let the claimed end pass.

    Args:
        needs_duplicate: a duplicate replay is due, so two replays must match.
    """
    return agreed_digest(inner_digests) is not None and len(inner_digests) >= (2 if needs_duplicate else 1)


def answer(results: Sequence[str], claimed_leaf: str | None = None, *, no_verifier_left: bool = False) -> str | None:
    """Return the right result of different verifiers, in any order; None if not known yet.

    The claimed leaf is wrong for a canary, because it belongs to another start: a verifier that returns it has copied,
    and does not count. Two verifiers that agree are right if no other result exists, or by a lead of two.

    Args:
        claimed_leaf: claimed end of the segment that the canary repeats.
        no_verifier_left: no further verifier can replay. Then a lead of one suffices.
    """
    computed = Counter(result for result in results if result != claimed_leaf)
    (leaf, most), (_, next_most) = [*computed.most_common(2), ("", 0), ("", 0)][:2]
    return leaf if most >= 2 and most - next_most >= (1 if no_verifier_left else _LEAD) else None
