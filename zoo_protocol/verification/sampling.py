"""Public random draws of verification, which anyone can recompute.

Every draw is ``keccak(seed || domain || subject || counter)`` as a big-endian integer. A range draw takes it modulo
the range; with 256-bit words the bias is below 2**-200 for any range used here. A range must not depend on anything
that changes after the seed is known, such as the list of verifiers.
"""

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from math import comb

from zoo_protocol.hashing import from_hex, keccak

_DECIMAL = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)


def draw(seed: bytes, domain: str, subject: bytes, counter: int = 0) -> int:
    """Return a uniform 256-bit integer for (seed, domain, subject, counter)."""
    return int.from_bytes(keccak(seed + domain.encode() + b"\x00" + subject + counter.to_bytes(8, "big")), "big")


def draw_segments(seed: bytes, trace_root: bytes, segments: int, rate_bps: int) -> list[int]:
    """Return the sampled segments of one unit, without replacement, in ascending order.

    ``segments * rate_bps / 10_000`` segments are sampled on average: always the whole part, and one more with the
    probability of the fraction.

    Args:
        seed: the window's recorded seed (32 bytes).
        trace_root: the unit's committed root, which gives each unit its own draw.
        segments: number of segments of the unit (at least 1).
        rate_bps: sampling rate in basis points, 0..10_000.

    Raises:
        ValueError: ``segments`` or ``rate_bps`` is out of range.
    """
    if segments < 1 or not 0 <= rate_bps <= 10_000:
        raise ValueError(f"segments is {segments}, rate_bps is {rate_bps}; expected at least 1, and 0 to 10000")
    whole, fraction = divmod(segments * rate_bps, 10_000)
    count = whole + (draw(seed, "count", trace_root) % 10_000 < fraction)
    pool = list(range(segments))
    chosen = [pool.pop(draw(seed, "segment", trace_root, i) % len(pool)) for i in range(count)]
    return sorted(chosen)


def draw_weighted(seed: bytes, domain: str, subject: bytes, weights: Mapping[str, int]) -> str:
    """Return an address drawn with probability proportional to its integer weight.

    Each address has a number u: ``(draw(seed, domain, subject || address) + 1) / 2**256``. The least ``-ln(u) /
    weight`` is drawn (Efraimidis and Spirakis, 2006). The order of two addresses does not depend on the others. A
    verifier that knows the seed therefore gains nothing by stopping nodes or adding stake. 40 decimal digits, rounded
    correctly at each step, give the same bits everywhere.

    Args:
        weights: by address (0x hex of 20 bytes); zero weights are never drawn.

    Raises:
        ValueError: no weight is positive.
    """

    def arrival(address: str) -> tuple[Decimal, str]:
        number = draw(seed, domain, subject + from_hex(address, 20)) + 1
        wait = _DECIMAL.minus(_DECIMAL.ln(_DECIMAL.divide(Decimal(number), Decimal(2**256))))
        return _DECIMAL.divide(wait, Decimal(weights[address])), address

    if not any(weight > 0 for weight in weights.values()):
        raise ValueError("no positive weight to draw from")
    return min(arrival(address) for address, weight in weights.items() if weight > 0)[1]


def detection_probability(segments: int, falsified: int, drawn: int) -> float:
    """Return the chance that one of ``falsified`` is among ``drawn`` of ``segments``.

    Without replacement: ``1 - C(N-c, q) / C(N, q)``.
    """
    return 1 - comb(segments - falsified, drawn) / comb(segments, drawn)


def detection_at_rate(segments: int, falsified: int, rate_bps: int) -> float:
    """Return the mean :func:`detection_probability` over ``draw_segments``."""
    whole, fraction = divmod(segments * rate_bps, 10_000)
    low = detection_probability(segments, falsified, whole)
    high = detection_probability(segments, falsified, min(whole + 1, segments))
    return low + (high - low) * fraction / 10_000
