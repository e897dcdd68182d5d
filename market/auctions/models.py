"""Tables of the call market: one row per cleared round of a book."""

from datetime import datetime

from sqlalchemy import Integer, String, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.db.base import Base, CreatedAt, Hash32, UtcDateTime, Wei


class AuctionRound(Base, CreatedAt):
    """One clearing of one book (tier). The seed's hash is public before the round closes, the seed after."""

    __tablename__ = "auction_rounds"
    __table_args__ = (UniqueConstraint("tier_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tier_id: Mapped[int] = mapped_column(Integer)
    number: Mapped[int] = mapped_column(Integer)
    seed: Mapped[str] = mapped_column(Hash32)  # secret until cleared
    seed_hash: Mapped[str] = mapped_column(Hash32)
    status: Mapped[str] = mapped_column(String(16))  # open | cleared
    closes_at: Mapped[datetime] = mapped_column(UtcDateTime)
    cleared_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    price_wei: Mapped[int | None] = mapped_column(Wei)
    rule: Mapped[str | None] = mapped_column(String(16))  # sbba | posted
    book: Mapped[dict[str, object]] = mapped_column(JSONB, default=dict)  # orders as cleared, for replay
    matches: Mapped[list[object]] = mapped_column(JSONB, default=list)
