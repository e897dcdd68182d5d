"""Auction rounds."""

import sqlalchemy as sa

from migrations.baseline.columns import JSONB, TIME, WEI, created_at, metadata

sa.Table(
    "auction_rounds",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("tier_id", sa.Integer, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("secret", sa.String(66), nullable=False),
    sa.Column("commitment", sa.String(66), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("closes_at", TIME, nullable=False),
    sa.Column("cleared_at", TIME),
    sa.Column("price_wei", WEI),
    sa.Column("rule", sa.String(16)),
    sa.Column("book", JSONB, nullable=False),
    sa.Column("matches", JSONB, nullable=False),
    created_at(),
    sa.Column("zone", sa.String(32), nullable=False),
    sa.Column("owners", JSONB, nullable=False),
    sa.Column("volume_us", WEI, nullable=False),
    sa.Column("waits_ms", JSONB, nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("closed_at", TIME),
    sa.Column("book_hash", sa.String(66)),
    sa.Column("seed_block", sa.BigInteger),
    sa.Column("seed_block_hash", sa.String(66)),
    sa.Column("bid_nodes", sa.Integer),
    sa.Column("ask_nodes", sa.Integer),
    sa.UniqueConstraint("tier_id", "zone", "number"),
    sa.Index("ix_auction_rounds_cleared_at", "tier_id", "zone", "cleared_at"),
    sa.Index("ix_auction_rounds_closed", "id", postgresql_where=sa.text("status = 'closed'")),
    sa.Index("ix_auction_rounds_with_orders", "cleared_at", postgresql_where=sa.text("book <> '{}'")),
)
