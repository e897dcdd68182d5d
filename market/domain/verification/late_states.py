"""Deadlines and penalties of late start states. Pure."""

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum

LATE_DATA = "late_data"

WITHHELD_DATA, REFUSED_DATA, BANDWIDTH_VIOLATION = "withheld_data", "refused_data", "bandwidth_violation"
"""Names in the penalty table."""

DAYS = 3
"""Number of days (UTC) with a late state that is a ``bandwidth_violation``."""

WITHIN_DAYS = 30
"""Length in days of the period that contains them."""


class LatenessOutcome(StrEnum):
    """Consequence of a late state after the decision on its unit."""

    COUNTED = "counted"  # like a lost unit, and towards a bandwidth violation
    SAME_DAY = "same_day"  # another late state of the provider on that day counted
    UNIT_REJECTED = "unit_rejected"  # the rejection replaces it
    PROVIDER_JAILED = "provider_jailed"  # for another offence


def final_deadline(requested_at: datetime, due_at: datetime, min_seconds: int) -> datetime:
    """Return the final deadline of a state: twice its time, at least ``min_seconds``."""
    return requested_at + max(2 * (due_at - requested_at), timedelta(seconds=min_seconds))


def offence_for_missing_state(refusal: str | None) -> str:
    """Return the offence of a state that was not revealed, or refused with a final ``refusal``."""
    return WITHHELD_DATA if refusal is None else REFUSED_DATA


def lateness_outcome(*, verified: bool, jailed: bool, same_day: bool) -> LatenessOutcome:
    """Return the consequence of a late state.

    Args:
        verified: its unit is verified.
        jailed: its provider is jailed.
        same_day: another state that was due on that day counted.
    """
    if not verified:
        return LatenessOutcome.UNIT_REJECTED
    if jailed:
        return LatenessOutcome.PROVIDER_JAILED
    return LatenessOutcome.SAME_DAY if same_day else LatenessOutcome.COUNTED


def violation(days: Collection[int]) -> tuple[int, ...] | None:
    """Return the first ``DAYS`` of these days that are within ``WITHIN_DAYS``, or None.

    Args:
        days: day numbers with a late state that counted since the last such penalty.
    """
    known = sorted(set(days))
    runs = (tuple(known[first : first + DAYS]) for first in range(len(known) - DAYS + 1))
    return next((run for run in runs if run[-1] - run[0] < WITHIN_DAYS), None)
