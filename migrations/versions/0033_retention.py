"""What is kept of jobs that ended long ago: whether that was cut down, and what finds it.

Revision: 0033, after 0032.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("released_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index("ix_jobs_unreleased", "jobs", ["id"], postgresql_where=sa.text("released_at IS NULL"))
    op.create_index("ix_checkpoints_file_cids", "checkpoints", ["file_cids"], postgresql_using="gin")
    op.create_index(
        "ix_auction_rounds_with_orders",
        "auction_rounds",
        ["cleared_at"],
        postgresql_where=sa.text("book <> '{}'::jsonb"),
    )


def downgrade() -> None:
    op.drop_index("ix_auction_rounds_with_orders", table_name="auction_rounds")
    op.drop_index("ix_checkpoints_file_cids", table_name="checkpoints")
    op.drop_index("ix_jobs_unreleased", table_name="jobs")
    op.drop_column("jobs", "released_at")
