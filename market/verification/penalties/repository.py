"""Queries over slashes and penalties."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from market.platform.db.locks import locked
from market.verification.penalties.models import LatePenalty, Slash


def last_late_penalty_at(session: Session, provider: str) -> datetime | None:
    return session.scalar(select(func.max(LatePenalty.created_at)).where(LatePenalty.provider == provider))


def lock_penalty(session: Session, evidence: str) -> Slash | LatePenalty | None:
    late = session.scalar(locked(select(LatePenalty).where(LatePenalty.evidence == evidence)))
    return late or session.scalar(locked(select(Slash).where(Slash.evidence == evidence)))


def slashes_of_job(session: Session, job_id: str) -> Sequence[Slash]:
    """Return the slashes of providers, not of verifiers, for units of the job, by id."""
    mine = (Slash.job_id == job_id, Slash.replay_id.is_(None))
    return session.scalars(select(Slash).where(*mine).order_by(Slash.id)).all()


def last_slashed_at(session: Session, wallet: str) -> datetime | None:
    return session.scalar(select(func.max(Slash.created_at)).where(Slash.provider == wallet))


def is_slashed_for(session: Session, unit_id: int, wallet: str) -> bool:
    return bool(session.scalar(select(exists().where(Slash.unit_id == unit_id, Slash.provider == wallet))))


def unexecuted_penalties(session: Session) -> list[Slash | LatePenalty]:
    """Return the penalties that no final event has executed, each kind oldest first."""
    slashes = session.scalars(select(Slash).where(Slash.tx.is_(None)).order_by(Slash.id))
    late = session.scalars(select(LatePenalty).where(LatePenalty.tx.is_(None)).order_by(LatePenalty.id))
    return [*slashes, *late]
