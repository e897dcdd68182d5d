"""Spending caps of a key, an organisation and its member: per job, per day and in total.

A job counts with its budget from its submission, and with its cost after the settlement. It belongs to the UTC day of
its submission. The transaction that writes the job sums under a lock on the limit's row. Concurrent submissions
therefore cannot exceed a cap together, and a failed one is not charged.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from market.accounts.errors import SpendingCapReached
from market.accounts.models import Spending, SpendingLimit
from market.domain.money import format_amount
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps in wei of ZEN; None: unlimited."""

    per_job_wei: int | None = None
    per_day_wei: int | None = None
    total_wei: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Caps):
    """Caps and spending of a limit, in wei of ZEN."""

    spent_today_wei: int
    spent_total_wei: int


def create_limit(session: Session, caps: Caps) -> int:
    """Create a limit and return its id."""
    row = SpendingLimit(**asdict(caps))
    session.add(row)
    session.flush()
    return row.id


def set_caps(session: Session, limit_id: int, caps: Caps) -> None:
    """Change a limit. Earlier charges stay, even above the new caps."""
    row = session.get_one(SpendingLimit, limit_id, with_for_update=True)
    row.per_job_wei, row.per_day_wei, row.total_wei = caps.per_job_wei, caps.per_day_wei, caps.total_wei


def usage(session: Session, limit_id: int) -> Usage:
    row = session.get_one(SpendingLimit, limit_id)
    return _usage(session, row, utc_now())


def reserve(session: Session, job_id: str, amount_wei: int, limits: Collection[tuple[int, str]]) -> None:
    """Charge a job to all its limits, or to none.

    Args:
        amount_wei: the job's budget.
        limits: (id, holder) of each limit.

    Raises:
        SpendingCapReached: the job exceeds a cap; ``extra`` has the cap and its rest.
    """
    now = utc_now()
    for limit_id, whose in sorted(limits):  # a fixed order of locks prevents deadlocks
        row = session.get_one(SpendingLimit, limit_id, with_for_update=True, populate_existing=True)
        used = _usage(session, row, now)
        for name, cap, before in (
            ("per_job_wei", row.per_job_wei, 0),
            ("per_day_wei", row.per_day_wei, used.spent_today_wei),
            ("total_wei", row.total_wei, used.spent_total_wei),
        ):
            if cap is not None and before + amount_wei > cap:
                left = max(0, cap - before)
                raise SpendingCapReached(
                    f"budget_max is {format_amount(amount_wei)}; the cap {name} of {whose} leaves "
                    f"{format_amount(left)} of {format_amount(cap)}.",
                    field="budget_max",
                    extra={"cap": name, "of": whose, "cap_wei": str(cap), "left_wei": str(left)},
                )
        session.add(Spending(job_id=job_id, limit_id=limit_id, amount_wei=amount_wei, created_at=now))
    session.flush()


def set_cost(session: Session, job_id: str, amount_wei: int) -> None:
    """Set a job's charge: its cost after the settlement, 0 if its deposit failed."""
    session.execute(update(Spending).where(Spending.job_id == job_id).values(amount_wei=amount_wei))


def _usage(session: Session, row: SpendingLimit, now: datetime) -> Usage:
    midnight = datetime.combine(now.date(), time(), UTC)
    amount = Spending.amount_wei
    query = select(
        func.coalesce(func.sum(amount).filter(Spending.created_at >= midnight), 0), func.coalesce(func.sum(amount), 0)
    ).where(Spending.limit_id == row.id)
    today, total = session.execute(query).one()
    return from_row(Usage, row, spent_today_wei=int(today), spent_total_wei=int(total))
