"""Queries on auction rounds."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.auctions.models import AuctionRound


def insert_round(session: Session, **values: object) -> None:
    """Open a round of a book unless it is there."""
    session.execute(insert(AuctionRound).values(**values).on_conflict_do_nothing())


def lock_newest(session: Session, tier_id: int) -> AuctionRound | None:
    """The newest round of a book, locked; None if there is none or somebody else is at it."""
    statement = select(AuctionRound).where(AuctionRound.tier_id == tier_id).order_by(AuctionRound.number.desc())
    return session.scalar(statement.limit(1).with_for_update(key_share=True, skip_locked=True))


def newest(session: Session, tier_id: int) -> AuctionRound | None:
    """The newest round of a book."""
    statement = select(AuctionRound).where(AuctionRound.tier_id == tier_id).order_by(AuctionRound.number.desc())
    return session.scalar(statement.limit(1))


def newest_cleared(session: Session, tier_id: int) -> AuctionRound | None:
    """The round of a book that traded last."""
    statement = (
        select(AuctionRound)
        .where(AuctionRound.tier_id == tier_id, AuctionRound.status == "cleared")
        .order_by(AuctionRound.number.desc())
    )
    return session.scalar(statement.limit(1))


def by_number(session: Session, tier_id: int, number: int) -> AuctionRound | None:
    """One round of a book."""
    return session.scalar(select(AuctionRound).where(AuctionRound.tier_id == tier_id, AuctionRound.number == number))


def by_id(session: Session, round_id: int) -> AuctionRound | None:
    """One round."""
    return session.get(AuctionRound, round_id)
