"""The public random draws of verification, which anyone can recompute.

Every draw is ``keccak(seed || domain || subject || counter)`` read as a big-endian integer. A range draw
takes it modulo the range: with 256-bit words the bias is below 2**-200 for any range used here. What somebody can
change after the seed is known, as the list of verifiers, is never such a range.
"""

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from math import comb

from zoo_protocol.hashing import from_hex, keccak

_DECIMAL = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)


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


def draw_weighted(seed: bytes, domain: str, subject: bytes, weights: Mapping[str, int]) -> str:
    """The address drawn with probability proportional to its integer weight (the verifier lottery, weight = stake).

    Each has a number u of its own, ``(draw(seed, domain, subject || address) + 1) / 2**256``; the least ``-ln(u) /
    weight`` is drawn (Efraimidis and Spirakis, 2006). So who else takes part, and with how much, decides nothing
    between two of them: who knows the seed gains nothing by switching own nodes off, or by adding a wei to a stake.
    40 decimal digits, rounded correctly at each step, give everybody the same bits.

    Args:
        weights: by address (0x hex of 20 bytes); who weighs nothing is not drawn.

    Raises:
        ValueError: if no weight is positive.
    """

    def arrival(address: str) -> tuple[Decimal, str]:
        number = draw(seed, domain, subject + from_hex(address, 20)) + 1
        wait = _DECIMAL.minus(_DECIMAL.ln(_DECIMAL.divide(Decimal(number), Decimal(2**256))))
        return _DECIMAL.divide(wait, Decimal(weights[address])), address

    if not any(weight > 0 for weight in weights.values()):
        raise ValueError("no positive weight to draw from")
    return min(arrival(address) for address, weight in weights.items() if weight > 0)[1]


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
