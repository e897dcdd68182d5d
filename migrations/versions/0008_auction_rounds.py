"""Auction rounds per zone: committed secret, seed block, sealed orders, and what the price history is made of.

Revision: 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ROUNDS = "auction_rounds"
_JSON = postgresql.JSONB(astext_type=sa.Text())


def upgrade() -> None:
    # A tier used to have one book. Its cleared rounds stay, in a zone of their own; the open one ends.
    op.execute("DELETE FROM auction_rounds WHERE status = 'open'")
    _add_filled("zone", sa.String(length=32), "all")
    _add_filled("owners", _JSON, "{}")
    _add_filled("volume_us", sa.Numeric(78, 0), "0")
    _add_filled("waits_ms", _JSON, "[]")
    op.alter_column(_ROUNDS, "seed", new_column_name="secret")
    op.alter_column(_ROUNDS, "seed_hash", new_column_name="commitment")
    op.add_column(_ROUNDS, sa.Column("reason", sa.String(length=64), nullable=True))
    op.add_column(_ROUNDS, sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(_ROUNDS, sa.Column("book_hash", sa.String(length=66), nullable=True))
    op.add_column(_ROUNDS, sa.Column("seed_block", sa.BigInteger(), nullable=True))
    op.add_column(_ROUNDS, sa.Column("seed_block_hash", sa.String(length=66), nullable=True))
    op.add_column(_ROUNDS, sa.Column("bid_nodes", sa.Integer(), nullable=True))
    op.add_column(_ROUNDS, sa.Column("ask_nodes", sa.Integer(), nullable=True))
    op.drop_constraint(op.f("uq_auction_rounds_tier_id_number"), _ROUNDS, type_="unique")
    op.create_unique_constraint(op.f("uq_auction_rounds_tier_id_zone_number"), _ROUNDS, ["tier_id", "zone", "number"])
    op.create_index("ix_auction_rounds_closed", _ROUNDS, ["id"], postgresql_where=sa.text("status = 'closed'"))
    op.create_index("ix_auction_rounds_cleared_at", _ROUNDS, ["tier_id", "zone", "cleared_at"])


def _add_filled(name: str, kind: sa.types.TypeEngine[object], value: str) -> None:
    """A column that may not be null, with ``value`` in the rows that are there."""
    op.add_column(_ROUNDS, sa.Column(name, kind, nullable=False, server_default=value))
    op.alter_column(_ROUNDS, name, server_default=None)


def downgrade() -> None:
    # Only rounds of a whole tier fit into the table of before.
    op.execute(
        "UPDATE jobs SET auction_round_id = NULL "
        "FROM auction_rounds r WHERE r.id = auction_round_id AND r.zone <> 'all'"
    )
    op.execute("DELETE FROM auction_rounds WHERE zone <> 'all'")
    op.drop_index("ix_auction_rounds_cleared_at", _ROUNDS)
    op.drop_index("ix_auction_rounds_closed", _ROUNDS)
    op.drop_constraint(op.f("uq_auction_rounds_tier_id_zone_number"), _ROUNDS, type_="unique")
    op.create_unique_constraint(op.f("uq_auction_rounds_tier_id_number"), _ROUNDS, ["tier_id", "number"])
    op.alter_column(_ROUNDS, "commitment", new_column_name="seed_hash")
    op.alter_column(_ROUNDS, "secret", new_column_name="seed")
    for name in (
        "ask_nodes",
        "bid_nodes",
        "seed_block_hash",
        "seed_block",
        "book_hash",
        "closed_at",
        "reason",
        "waits_ms",
        "volume_us",
        "owners",
        "zone",
    ):
        op.drop_column(_ROUNDS, name)
