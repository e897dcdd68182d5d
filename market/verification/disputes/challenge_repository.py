"""Queries over the market's own disputes."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from market.domain.lifecycle import ChallengeStatus
from market.verification.disputes.challenge_models import Challenge


def challenge(session: Session, unit_id: int) -> Challenge | None:
    return session.get(Challenge, unit_id)


def lock_challenge(session: Session, unit_id: int) -> Challenge | None:
    """Lock and refresh the market's dispute of a unit."""
    query = select(Challenge).where(Challenge.unit_id == unit_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def open_challenges(session: Session) -> Sequence[Challenge]:
    """Return the open ones, oldest first."""
    query = select(Challenge).where(Challenge.status == ChallengeStatus.OPEN)
    return session.scalars(query.order_by(Challenge.created_at, Challenge.unit_id)).all()
