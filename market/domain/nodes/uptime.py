"""Uptime: which minutes of an epoch a node was up, which count at all, and what falls below a tier's promise.

The minutes of an epoch are the bits of one integer, the first minute the lowest. A node was up in a minute in which it
sent a heartbeat. A minute counts only if at least half as many nodes with stake as usual were seen in it: a minute in
which the market itself was out of reach is held against nobody.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_high

from market.domain.network import BPS, EPOCH_SECONDS

HOUR_SECONDS = 3_600


EPOCH_HOURS = EPOCH_SECONDS // HOUR_SECONDS


EPOCH_MINUTES = EPOCH_SECONDS // 60


ALL_MINUTES = (1 << EPOCH_MINUTES) - 1


GRACE_MINUTES = 30
"""Minutes of downtime in an epoch that are forgiven beyond what the tier allows: a reboot, a line that flaps."""


LEAST_COMMITTED_MINUTES = 240
"""An epoch in which fewer committed minutes count is not judged: a share of so little says nothing."""


def epoch_of(unix: float) -> int:
    """Number of the epoch that this Unix time is in; epochs begin at multiples of their length."""
    return int(unix) // EPOCH_SECONDS


def minute_of(unix: float) -> tuple[int, int]:
    """(hour since 1970, bit of the minute in it) of a Unix time."""
    hour, seconds = divmod(int(unix), HOUR_SECONDS)
    return hour, 1 << (seconds // 60)


def seen_minutes(hours: Mapping[int, int]) -> int:
    """An epoch's minutes from those of its hours.

    Args:
        hours: the 60 bits of each hour, by hour since 1970; all of one epoch.
    """
    return sum(bits << 60 * (hour % EPOCH_HOURS) for hour, bits in hours.items())


def minutes_between(epoch: int, start: float, end: float) -> int:
    """The epoch's minutes that lie wholly between two Unix times."""
    first = -int((epoch * EPOCH_SECONDS - start) // 60)  # rounds up
    last = int((end - epoch * EPOCH_SECONDS) // 60)
    first, last = (min(max(minute, 0), EPOCH_MINUTES) for minute in (first, last))
    return ((1 << last) - 1) & ~((1 << first) - 1)


def committed_minutes(epoch: int, periods: Iterable[tuple[float, float]]) -> int:
    """The epoch's minutes in any of the committed periods, each (start, end) in Unix seconds."""
    minutes = 0
    for start, end in periods:
        minutes |= minutes_between(epoch, start, end)
    return minutes


def was_silent(hours: Mapping[int, int], start: float, end: float) -> bool:
    """Whether there was a whole minute between two Unix times in which no node at all was seen: then the market was
    down, or the road to it. What was before the first minute in which one was is not known, and does not count.

    Args:
        hours: the minutes in which anybody was seen, 60 bits of each hour, by hour since 1970; at least one.
    """
    oldest = min(hours)
    lowest_bit = hours[oldest] & -hours[oldest]
    known = oldest * 60 + lowest_bit.bit_length() - 1
    first, last = max(known, -int(-start // 60)), int(end // 60)
    return any(not hours.get(minute // 60, 0) >> minute % 60 & 1 for minute in range(first, last))


def counted_minutes(seen: Sequence[int], usual_before: int) -> tuple[int, int]:
    """(the minutes that count, how many nodes are usual).

    Usual is the median over the minutes in which anybody was seen, or that of the epoch before if it is higher, so that
    a long outage does not become the rule by which it is measured.

    Args:
        seen: the minutes of each node that had stake in them.
    """
    nodes = _count(seen)
    usual = max(usual_before, median_high([number for number in nodes if number] or [0]))
    return sum(1 << minute for minute, number in enumerate(nodes) if number and 2 * number >= usual), usual


def _count(masks: Sequence[int]) -> list[int]:
    """How many of the masks have each bit. Adds all columns at once: the planes are the digits of the sums."""
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
    """Share of the ``due`` minutes in which a node was up, in basis points; all of them where none was due."""
    return up * BPS // due if due else BPS


def is_breach(up: int, due: int, sla_bps: int) -> bool:
    """Whether ``up`` of ``due`` committed minutes is less than a tier promises, beyond the grace."""
    return due >= LEAST_COMMITTED_MINUTES and (due - up - GRACE_MINUTES) * BPS > due * (BPS - sla_bps)
