"""Rules of a drawn state's lateness: how long a provider has, what being late counts, and when it is an offence."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

LATE_DATA = "late_data"


WITHHELD_DATA, REFUSED_DATA, BANDWIDTH_VIOLATION = "withheld_data", "refused_data", "bandwidth_violation"
"""Offences by their names in the penalty table."""


DAYS = 3
"""So many days (UTC) with a late state are a ``bandwidth_violation``"""


WITHIN_DAYS = 30
"""if all of them are within so many."""


class LatenessOutcome(StrEnum):
    """What a late state came to, once its unit was decided."""

    COUNTED = "counted"  # like a lost unit, and towards a bandwidth violation
    SAME_DAY = "same_day"  # another one of its provider's on that day was counted
    UNIT_REJECTED = "unit_rejected"  # that costs more, or was nobody's fault
    PROVIDER_JAILED = "provider_jailed"  # meanwhile, for something else


def last_time(now: datetime, due_at: datetime) -> datetime:
    """Until when a state is accepted at last that is due then: as long again as from now until it is due."""
    return due_at + (due_at - now)


def offence_for_missing_state(refusal: str | None) -> str:
    """What a provider is convicted of that did not show a state; ``refusal``: the code by which it said no, if that
    was its last word."""
    return WITHHELD_DATA if refusal is None else REFUSED_DATA


def lateness_outcome(*, verified: bool, jailed: bool, same_day: bool) -> LatenessOutcome:
    """What a late state comes to.

    Args:
        verified: its unit was.
        jailed: its provider is.
        same_day: a state that was due on the same day was counted already.
    """
    if not verified:
        return LatenessOutcome.UNIT_REJECTED
    if jailed:
        return LatenessOutcome.PROVIDER_JAILED
    return LatenessOutcome.SAME_DAY if same_day else LatenessOutcome.COUNTED


def violation(days: Collection[int]) -> tuple[int, ...] | None:
    """The first ``DAYS`` of these days that are within ``WITHIN_DAYS``; None if there are none.

    Args:
        days: on which a late state was counted since the last such penalty, as numbers of days.
    """
    known = sorted(set(days))
    runs = (tuple(known[first : first + DAYS]) for first in range(len(known) - DAYS + 1))
    return next((run for run in runs if run[-1] - run[0] < WITHIN_DAYS), None)
