"""Disputes of units as the chain has them, the verdicts of their referees, and units whose pay is withheld.

Revision: 0018, after 0017.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_STATUSES = "'none', 'trace', 'step', 'drawing', 'judging', 'provider_lost', 'challenger_lost', 'undecided', 'moot'"
_OPEN = "status IN ('trace', 'step', 'drawing', 'judging')"


def upgrade() -> None:
    op.create_table(
        "disputes",
        sa.Column("id", sa.String(length=66), nullable=False),
        sa.Column("unit_key", sa.String(length=66), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("challenger", sa.String(length=42), nullable=False),
        sa.Column("segments", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("environment_class", sa.String(length=66), nullable=True),
        sa.Column("states", postgresql.JSONB(), nullable=True),
        sa.Column("draw", sa.Integer(), nullable=False),
        sa.Column("committee", postgresql.JSONB(), nullable=True),
        sa.Column("state_cid", sa.String(length=128), nullable=True),
        sa.Column("opened_tx", sa.String(length=66), nullable=False),
        sa.Column("ended_tx", sa.String(length=66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint(f"status IN ({_STATUSES})", name=op.f("ck_disputes_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disputes")),
    )
    op.create_index(op.f("ix_disputes_unit_key"), "disputes", ["unit_key"])
    op.create_index("ix_disputes_open", "disputes", ["id"], postgresql_where=sa.text(_OPEN))
    op.create_table(
        "dispute_verdicts",
        sa.Column("dispute_id", sa.String(length=66), nullable=False),
        sa.Column("draw", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("referee", sa.String(length=42), nullable=False),
        sa.Column("provider_correct", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("signature", sa.String(length=132), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["dispute_id"], ["disputes.id"], name=op.f("fk_dispute_verdicts_dispute_id_disputes")),
        sa.PrimaryKeyConstraint("dispute_id", "draw", "referee", name=op.f("pk_dispute_verdicts")),
    )
    op.create_table(
        "withheld_units",
        sa.Column("unit_key", sa.String(length=66), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("unit_key", name=op.f("pk_withheld_units")),
    )


def downgrade() -> None:
    for table in ("withheld_units", "dispute_verdicts", "disputes"):
        op.drop_table(table)
