"""Queries over samples of models."""

from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from market.platform.db.locks import locked
from market.training.generation.models import Generation

_IS_OPEN = Generation.ended_at.is_(None)


def open_counts(session: Session, account: str) -> tuple[int, int]:
    """Return the numbers of samples that have not ended, of all accounts and of this one."""
    own = func.count().filter(Generation.account == account)
    total, of_account = session.execute(select(func.count(), own).where(_IS_OPEN)).one()
    return total, of_account


def number_of(session: Session, account: str) -> int:
    """Return the number of an account's samples that are not yet deleted."""
    return session.scalar(select(func.count()).where(Generation.account == account)) or 0


def number_before(session: Session, generation_id: int) -> int:
    """Return how many older samples have not ended."""
    return session.scalar(select(func.count()).where(_IS_OPEN, Generation.id < generation_id)) or 0


def oldest_open(session: Session) -> Generation | None:
    """Lock and return the oldest sample that has not ended."""
    return session.scalar(locked(select(Generation).where(_IS_OPEN).order_by(Generation.id).limit(1)))


def delete_before(session: Session, moment: datetime) -> None:
    session.execute(delete(Generation).where(Generation.created_at < moment))
