"""When the market itself was away, and an index for the hardware proofs that are under way.

Revision: 0031, after 0030.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "presences",
        sa.Column("part", sa.String(8), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("part", name=op.f("pk_presences")),
    )
    op.create_table(
        "outages",
        sa.Column("part", sa.String(8), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("part", "starts_at", name=op.f("pk_outages")),
    )
    op.create_index("ix_outages_ends_at", "outages", ["ends_at"])
    op.create_index(
        "ix_benchmark_runs_open", "benchmark_runs", ["provider"], postgresql_where=sa.text("answered_at IS NULL")
    )


def downgrade() -> None:
    op.drop_index("ix_benchmark_runs_open", table_name="benchmark_runs")
    op.drop_index("ix_outages_ends_at", table_name="outages")
    op.drop_table("outages")
    op.drop_table("presences")
