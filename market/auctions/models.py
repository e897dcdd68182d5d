"""Tables of the auctions: one row per auction round."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index, Integer, String, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt, Hash32, UtcDateTime, Wei

HAS_ORDERS = text("book <> '{}'::jsonb")


class AuctionRound(Base, CreatedAt):
    """Round of one order book (tier and zone); the sweep empties ``book`` and ``owners`` later."""

    __tablename__ = "auction_rounds"
    __table_args__ = (
        UniqueConstraint("tier_id", "zone", "number"),
        Index("ix_auction_rounds_closed", "id", postgresql_where=text("status = 'closed'")),
        Index("ix_auction_rounds_cleared_at", "tier_id", "zone", "cleared_at"),
        Index("ix_auction_rounds_with_orders", "cleared_at", postgresql_where=HAS_ORDERS),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    tier_id: Mapped[int] = mapped_column(Integer)
    zone: Mapped[str] = mapped_column(String(32))
    number: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16))  # lifecycle.AuctionStatus
    reason: Mapped[str | None] = mapped_column(String(64))  # traded | void: no match could be placed
    secret: Mapped[str] = mapped_column(Hash32)  # private until cleared
    commitment: Mapped[str] = mapped_column(Hash32)
    closes_at: Mapped[datetime] = mapped_column(UtcDateTime)
    closed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cleared_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    book: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)  # orders as cleared; private until then
    book_hash: Mapped[str | None] = mapped_column(Hash32)
    owners: Mapped[dict[str, dict[str, str]]] = mapped_column(JSONB, default=dict)  # of the orders; always private
    seed_block: Mapped[int | None] = mapped_column(BigInteger)  # only with a random tie-break
    seed_block_hash: Mapped[str | None] = mapped_column(Hash32)
    rule: Mapped[str | None] = mapped_column(String(16))  # sbba | posted
    price_wei: Mapped[int | None] = mapped_column(Wei)
    matches: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, default=list)
    bid_nodes: Mapped[int | None] = mapped_column(Integer)  # wanted and offered at the close, for the price history
    ask_nodes: Mapped[int | None] = mapped_column(Integer)
    volume_us: Mapped[int] = mapped_column(Wei, default=0)  # reference GPU-microseconds of the jobs placed
    waits_ms: Mapped[list[int]] = mapped_column(JSONB, default=list)  # from funding to match, of each placed job
