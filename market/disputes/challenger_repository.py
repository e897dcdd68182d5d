"""Every query on the disputes that the market brings itself."""

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from market.disputes.challenger_models import Challenge
from market.disputes.models import Dispute
from market.domain.lifecycle import DISPUTE_OPEN, ChallengeStatus


def challenge(session: Session, unit_id: int) -> Challenge | None:
    """The market's dispute of a unit."""
    return session.get(Challenge, unit_id)


def lock_challenge(session: Session, unit_id: int) -> Challenge:
    """As :func:`challenge`, of one that there is, locked and read afresh."""
    query = select(Challenge).where(Challenge.unit_id == unit_id).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one()


def unfinished(session: Session) -> Sequence[Challenge]:
    """Those that are not decided, or still hold a bond in the contract, oldest first."""
    query = select(Challenge).outerjoin(Dispute, Dispute.id == Challenge.dispute_id)
    is_unfinished = or_(Challenge.status == ChallengeStatus.OPEN, Dispute.status.in_(DISPUTE_OPEN))
    return session.scalars(query.where(is_unfinished).order_by(Challenge.created_at, Challenge.unit_id)).all()
