"""The public random draws of verification, which anyone can recompute.

Every draw is ``keccak(seed || domain || subject || counter)`` read as a big-endian integer. A range draw
takes it modulo the range: with 256-bit words the bias is below 2**-200 for any range used here.
"""

from collections.abc import Sequence
from math import comb

from zoo_protocol.hashing import keccak


def draw(seed: bytes, domain: str, subject: bytes, counter: int = 0) -> int:
    """A uniform 256-bit integer for (seed, domain, subject, counter)."""
    return int.from_bytes(keccak(seed + domain.encode() + b"\x00" + subject + counter.to_bytes(8, "big")), "big")


def draw_segments(seed: bytes, trace_root: bytes, segments: int, rate_bps: int) -> list[int]:
    """The segments of one unit that are replayed, without replacement, in ascending order.

    ``segments * rate_bps / 10_000`` segments are drawn on average: the whole part always, one more with the
    probability of the fraction.

    Args:
        seed: the window's latched challenge seed (32 bytes).
        trace_root: the unit's committed root, so that each unit has its own draw.
        segments: number of segments of the unit (at least 1).
        rate_bps: sampling rate in basis points, 0..10_000.

    Raises:
        ValueError: if ``segments`` or ``rate_bps`` is out of range.
    """
    if segments < 1 or not 0 <= rate_bps <= 10_000:
        raise ValueError(f"segments={segments} must be >= 1 and rate_bps={rate_bps} within 0..10000")
    whole, fraction = divmod(segments * rate_bps, 10_000)
    count = whole + (draw(seed, "count", trace_root) % 10_000 < fraction)
    pool = list(range(segments))
    chosen = [pool.pop(draw(seed, "segment", trace_root, i) % len(pool)) for i in range(count)]
    return sorted(chosen)


def draw_weighted(seed: bytes, domain: str, subject: bytes, weights: Sequence[int]) -> int:
    """Index drawn with probability proportional to its integer weight (the verifier lottery, weight = stake).

    Raises:
        ValueError: if no weight is positive.
    """
    total = sum(weights)
    if total <= 0:
        raise ValueError("no positive weight to draw from")
    point = draw(seed, domain, subject) % total
    for index, weight in enumerate(weights):
        if point < weight:
            return index
        point -= weight
    raise AssertionError("unreachable: the point lies below the total")


def detection_probability(segments: int, falsified: int, drawn: int) -> float:
    """Chance that at least one of ``falsified`` segments is among ``drawn`` of ``segments``, without replacement.

    ``1 - C(N-c, q) / C(N, q)``; the seed's ``1 - (1-s)**n`` is its with-replacement form, n the falsified steps.
    """
    return 1 - comb(segments - falsified, drawn) / comb(segments, drawn)


def detection_at_rate(segments: int, falsified: int, rate_bps: int) -> float:
    """The same before the draw: how many segments ``draw_segments`` draws is by chance, so it is the mean over both."""
    whole, fraction = divmod(segments * rate_bps, 10_000)
    low = detection_probability(segments, falsified, whole)
    high = detection_probability(segments, falsified, min(whole + 1, segments))
    return low + (high - low) * fraction / 10_000
