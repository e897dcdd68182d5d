"""The hardware proof of work: challenges in steps, asked for again at random times.

Revision: 0022, after 0021.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_NEW = (
    ("nonce", sa.String(length=66)),
    ("started_at", sa.DateTime(timezone=True)),
    ("commitment", sa.String(length=66)),
    ("committed_at", sa.DateTime(timezone=True)),
    ("secret", sa.String(length=66)),
)


def upgrade() -> None:
    # Challenges of the former kind that are open cannot be answered any more.
    op.execute("DELETE FROM benchmark_runs WHERE answered_at IS NULL")
    op.add_column("benchmark_runs", sa.Column("work", JSONB(), nullable=False, server_default="{}"))
    op.alter_column("benchmark_runs", "work", server_default=None)
    op.drop_column("benchmark_runs", "size")
    op.drop_column("benchmark_runs", "rounds")
    for name, type_ in _NEW:
        op.add_column("benchmark_runs", sa.Column(name, type_, nullable=True))
    op.add_column("providers", sa.Column("rebenchmark_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("providers", sa.Column("rebenchmark_by", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_providers_rebenchmark_by"), "providers", ["rebenchmark_by"])
    # Who earned its tier before is asked within a week, as if it had just passed.
    op.execute("UPDATE providers SET rebenchmark_at = now() + random() * interval '7 days' WHERE tier_id IS NOT NULL")


def downgrade() -> None:
    op.drop_column("providers", "rebenchmark_by")
    op.drop_column("providers", "rebenchmark_at")
    for name, _ in reversed(_NEW):
        op.drop_column("benchmark_runs", name)
    op.add_column("benchmark_runs", sa.Column("rounds", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("benchmark_runs", sa.Column("size", sa.Integer(), nullable=False, server_default="0"))
    op.drop_column("benchmark_runs", "work")
