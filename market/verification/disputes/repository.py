"""Queries over disputes, verdicts and held payouts, and the market's own disputes."""

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.domain.lifecycle import DISPUTE_OPEN, ChallengeStatus
from market.platform.db.locks import locked
from market.verification.disputes.models import Challenge, Dispute, Verdict, WithheldUnit


def dispute(session: Session, dispute_id: str) -> Dispute | None:
    return session.get(Dispute, dispute_id)


def lock_dispute(session: Session, dispute_id: str) -> Dispute | None:
    """Lock and refresh a dispute."""
    return session.scalar(locked(select(Dispute).where(Dispute.id == dispute_id)))


def open_disputes(session: Session) -> Sequence[Dispute]:
    """Return the disputes that have not ended in a final block, by id."""
    return session.scalars(select(Dispute).where(Dispute.status.in_(DISPUTE_OPEN)).order_by(Dispute.id)).all()


def disputes_of_unit(session: Session, unit_key: str) -> Sequence[Dispute]:
    return session.scalars(select(Dispute).where(Dispute.unit_key == unit_key).order_by(Dispute.created_at)).all()


def verdicts(session: Session, dispute_id: str, draw: int) -> Sequence[Verdict]:
    """Return the verdicts of committee ``draw``, by referee."""
    mine = Verdict.dispute_id == dispute_id, Verdict.draw == draw
    return session.scalars(select(Verdict).where(*mine).order_by(Verdict.referee)).all()


def record_held_payout(session: Session, unit_key: str, batch_id: int) -> None:
    values = {"unit_key": unit_key, "batch_id": batch_id}
    written = insert(WithheldUnit).values(values)
    session.execute(written.on_conflict_do_update(index_elements=[WithheldUnit.unit_key], set_=values))


def delete_held_payout(session: Session, unit_key: str) -> None:
    session.execute(delete(WithheldUnit).where(WithheldUnit.unit_key == unit_key))


def withheld_units(session: Session) -> Sequence[WithheldUnit]:
    return session.scalars(select(WithheldUnit).order_by(WithheldUnit.unit_key)).all()


def lock_challenge(session: Session, unit_id: int) -> Challenge | None:
    """Lock and refresh the market's dispute of a unit."""
    return session.scalar(locked(select(Challenge).where(Challenge.unit_id == unit_id)))


def open_challenges(session: Session) -> Sequence[Challenge]:
    """Return the market's open disputes, oldest first."""
    query = select(Challenge).where(Challenge.status == ChallengeStatus.OPEN)
    return session.scalars(query.order_by(Challenge.created_at, Challenge.unit_id)).all()
