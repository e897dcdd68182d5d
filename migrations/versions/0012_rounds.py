"""Leaves of aggregation trees; digests and lateness of payloads, and what nodes report of their units.

Revision: 0012, after 0011.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_UNITS = {
    "payload_sha256": sa.String(length=66),
    "top_k": sa.Integer(),
    "rounds_late": sa.Integer(),
    "report": postgresql.JSONB(astext_type=sa.Text()),
}


def upgrade() -> None:
    for name, kind in _UNITS.items():
        op.add_column("units", sa.Column(name, kind, nullable=True))
    op.create_table(
        "aggregation_leaves",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("leaf", sa.Integer(), nullable=False),
        sa.Column("seed", sa.String(length=66), nullable=False),
        sa.Column("parts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("summary", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("sum_cid", sa.String(length=128), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_aggregation_leaves_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "round", "leaf", name=op.f("pk_aggregation_leaves")),
    )


def downgrade() -> None:
    op.drop_table("aggregation_leaves")
    for name in reversed(_UNITS):
        op.drop_column("units", name)
