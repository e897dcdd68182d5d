"""Acknowledged commitments, claims on chain that one was left out, and when a window was committed.

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "acknowledgements",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("leaf", sa.String(length=66), nullable=False),
        sa.Column("include_by", sa.DateTime(timezone=True), nullable=False),
        sa.Column("signature", sa.String(length=132), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_acknowledgements_unit_id_units")),
        sa.PrimaryKeyConstraint("unit_id", name=op.f("pk_acknowledgements")),
        sa.UniqueConstraint("leaf", name=op.f("uq_acknowledgements_leaf")),
    )
    op.create_table(
        "omission_claims",
        sa.Column("leaf", sa.String(length=66), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("include_by", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("compensation_wei", sa.Numeric(precision=78, scale=0), nullable=True),
        sa.Column("tx", sa.String(length=66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("leaf", name=op.f("pk_omission_claims")),
    )
    op.create_index(op.f("ix_omission_claims_provider"), "omission_claims", ["provider"], unique=False)
    op.create_index(op.f("ix_omission_claims_status"), "omission_claims", ["status"], unique=False)
    op.add_column("windows", sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_units_windowless",
        "units",
        ["committed_at", "id"],
        unique=False,
        postgresql_where=sa.text("window_id IS NULL AND commitment_signature IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_units_windowless", table_name="units")
    op.drop_column("windows", "committed_at")
    op.drop_table("omission_claims")
    op.drop_table("acknowledgements")
