"""Disputes that the market brings itself, from an account of its own, and who decided each penalty.

Revision: 0019, after 0018.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "challenges",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("dispute_id", sa.String(length=66), nullable=False),
        sa.Column("unit_key", sa.String(length=66), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("challenger", sa.String(length=42), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("evidence_cid", sa.String(length=128), nullable=False),
        sa.Column("open_by", sa.DateTime(timezone=True), nullable=False),
        sa.Column("arguments", postgresql.JSONB(), nullable=False),
        sa.Column("convicted_in", sa.String(length=66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_challenges_unit_id_units")),
        sa.PrimaryKeyConstraint("unit_id", name=op.f("pk_challenges")),
        sa.UniqueConstraint("dispute_id", name=op.f("uq_challenges_dispute_id")),
    )
    op.create_index("ix_challenges_open", "challenges", ["provider"], postgresql_where=sa.text("status = 'open'"))
    op.add_column("providers", sa.Column("disputed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("units", sa.Column("dispute_id", sa.String(length=66), nullable=True))
    op.add_column("tx_intents", sa.Column("account", sa.String(length=16), server_default="operator", nullable=False))
    op.add_column("slashes", sa.Column("path", sa.String(length=16), server_default="operator", nullable=False))
    op.add_column("slashes", sa.Column("path_reason", sa.String(length=64), nullable=True))


def downgrade() -> None:
    op.drop_column("slashes", "path_reason")
    op.drop_column("slashes", "path")
    op.drop_column("tx_intents", "account")
    op.drop_column("units", "dispute_id")
    op.drop_column("providers", "disputed_at")
    op.drop_table("challenges")
