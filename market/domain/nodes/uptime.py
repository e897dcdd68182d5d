"""Uptime of nodes, the minutes that count, and breaches of a tier's uptime.

The minutes of an epoch are the bits of one integer, the first minute the lowest. A node is up in a minute with a
heartbeat. A minute counts if at least half of the usual number of staked nodes sent one. Minutes of a market outage
therefore do not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_high

from market.domain.network import BPS, EPOCH_SECONDS

HOUR_SECONDS = 3_600
EPOCH_HOURS = EPOCH_SECONDS // HOUR_SECONDS
EPOCH_MINUTES = EPOCH_SECONDS // 60
ALL_MINUTES = (1 << EPOCH_MINUTES) - 1

GRACE_MINUTES = 30
"""Minutes of downtime per epoch that do not count, in addition to the tier's: a reboot, an unstable line."""

MIN_COMMITTED_MINUTES = 240
"""Committed minutes below which an epoch has no breach: the sample is too small."""


def epoch_of(unix: float) -> int:
    """Return the number of the epoch of a Unix time; epochs begin at multiples of their length."""
    return int(unix) // EPOCH_SECONDS


def minute_of(unix: float) -> tuple[int, int]:
    """Return (hour since 1970, bit of the minute in it) of a Unix time."""
    hour, seconds = divmod(int(unix), HOUR_SECONDS)
    return hour, 1 << (seconds // 60)


def seen_minutes(hours: Mapping[int, int]) -> int:
    """Return an epoch's minutes from the 60 bits of each of its hours, by hour since 1970."""
    return sum(bits << 60 * (hour % EPOCH_HOURS) for hour, bits in hours.items())


def minutes_between(epoch: int, start: float, end: float) -> int:
    """Return the epoch's minutes that lie wholly between two Unix times."""
    first = -int((epoch * EPOCH_SECONDS - start) // 60)  # rounds up
    last = int((end - epoch * EPOCH_SECONDS) // 60)
    first, last = (min(max(minute, 0), EPOCH_MINUTES) for minute in (first, last))
    return ((1 << last) - 1) & ~((1 << first) - 1)


def committed_minutes(epoch: int, periods: Iterable[tuple[float, float]]) -> int:
    """Return the epoch's minutes within the committed periods, (start, end) in Unix seconds."""
    minutes = 0
    for start, end in periods:
        minutes |= minutes_between(epoch, start, end)
    return minutes


def had_outage(hours: Mapping[int, int], start: float, end: float) -> bool:
    """Return True if no node was seen in some whole minute between two Unix times.

    Minutes before the first one in ``hours`` are unknown and do not count.

    Args:
        hours: minutes in which a node was seen, 60 bits of each hour, by hour since 1970; at least one.
    """
    oldest = min(hours)
    lowest_bit = hours[oldest] & -hours[oldest]
    known = oldest * 60 + lowest_bit.bit_length() - 1
    first, last = max(known, -int(-start // 60)), int(end // 60)
    return any(not hours.get(minute // 60, 0) >> minute % 60 & 1 for minute in range(first, last))


def counted_minutes(seen: Sequence[int], usual_before: int) -> tuple[int, int]:
    """Return (minutes that count, usual number of nodes).

    The usual number is the median over the minutes in which a node was seen, at least that of the epoch before.
    Otherwise a long outage would lower it.

    Args:
        seen: minutes of each node that had stake in them.
    """
    nodes = _count(seen)
    usual = max(usual_before, median_high([number for number in nodes if number] or [0]))
    return sum(1 << minute for minute, number in enumerate(nodes) if number and 2 * number >= usual), usual


def _count(masks: Sequence[int]) -> list[int]:
    """Return the number of masks with each bit; the planes are the digits of the sums."""
    planes: list[int] = []
    for carry in masks:
        for digit, plane in enumerate(planes):
            planes[digit], carry = plane ^ carry, plane & carry
        if carry:
            planes.append(carry)
    return [
        sum((plane >> minute & 1) << digit for digit, plane in enumerate(planes)) for minute in range(EPOCH_MINUTES)
    ]


def uptime_bps(up: int, due: int) -> int:
    """Return the share of ``due`` minutes in which a node was up, in bps; all if none is due."""
    return up * BPS // due if due else BPS


def is_breach(up: int, due: int, sla_bps: int) -> bool:
    """Return True if ``up`` of ``due`` minutes is below the tier's uptime minus the grace."""
    return due >= MIN_COMMITTED_MINUTES and (due - up - GRACE_MINUTES) * BPS > due * (BPS - sla_bps)
