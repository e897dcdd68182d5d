"""Queries over commitment windows and omission claims."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from market.domain.verification.lifecycle import OmissionStatus, WindowStatus
from market.platform.db.locks import locked
from market.verification.windows.models import OmissionClaim, Window


def newest_window(session: Session) -> Window | None:
    return session.scalar(select(Window).order_by(Window.id.desc()).limit(1))


def window(session: Session, window_id: int) -> Window:
    return session.get_one(Window, window_id)


def windows(session: Session, *statuses: WindowStatus) -> list[Window]:
    return list(session.scalars(select(Window).where(Window.status.in_(statuses)).order_by(Window.id)))


def lock_window_by_root(session: Session, root: str) -> Window | None:
    return session.scalar(locked(select(Window).where(Window.root == root)))


def lock_window_by_contract_id(session: Session, contract_id: int) -> Window | None:
    return session.scalar(locked(select(Window).where(Window.chain_id_in_contract == contract_id)))


def lock_window(session: Session, window_id: int) -> Window:
    return session.scalars(locked(select(Window).where(Window.id == window_id))).one()


def lock_omission(session: Session, leaf: str) -> OmissionClaim | None:
    return session.scalar(locked(select(OmissionClaim).where(OmissionClaim.leaf == leaf)))


def open_omissions(session: Session, now: datetime) -> Sequence[OmissionClaim]:
    """Return the claims that can be answered, most urgent first."""
    query = select(OmissionClaim).where(OmissionClaim.status == OmissionStatus.OPEN, OmissionClaim.deadline > now)
    return session.scalars(query.order_by(OmissionClaim.deadline, OmissionClaim.leaf)).all()


def omissions_of(session: Session, provider: str, limit: int) -> Sequence[OmissionClaim]:
    query = select(OmissionClaim).where(OmissionClaim.provider == provider)
    return session.scalars(query.order_by(OmissionClaim.created_at.desc()).limit(limit)).all()


def count_open_omissions(session: Session) -> int:
    query = select(func.count()).where(OmissionClaim.status == OmissionStatus.OPEN)
    return session.scalar(query) or 0
