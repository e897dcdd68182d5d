"""When a stake last grew: drawn by lot are first whose stake was there before the seed was known. And an index for the
events of one job, slash or batch, for which all logs were read.

Revision: 0029, after 0028.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("stakes", sa.Column("raised_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_chain_logs_topics",
        "chain_logs",
        ["topics"],
        postgresql_using="gin",
        postgresql_ops={"topics": "jsonb_path_ops"},
    )


def downgrade() -> None:
    op.drop_index("ix_chain_logs_topics", table_name="chain_logs")
    op.drop_column("stakes", "raised_at")
