"""Every query on the disputes that the market brings itself."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from market.domain.lifecycle import ChallengeStatus
from market.verification.disputes.challenge_models import Challenge


def challenge(session: Session, unit_id: int) -> Challenge | None:
    """The market's dispute of a unit."""
    return session.get(Challenge, unit_id)


def lock_challenge(session: Session, unit_id: int) -> Challenge | None:
    """As :func:`challenge`, locked and read afresh."""
    query = select(Challenge).where(Challenge.unit_id == unit_id).with_for_update(key_share=True)
    return session.scalar(query.execution_options(populate_existing=True))


def open_challenges(session: Session) -> Sequence[Challenge]:
    """Those that have not ended, oldest first."""
    query = select(Challenge).where(Challenge.status == ChallengeStatus.OPEN)
    return session.scalars(query.order_by(Challenge.created_at, Challenge.unit_id)).all()
