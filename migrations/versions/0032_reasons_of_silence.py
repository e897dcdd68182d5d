"""Late, withheld and refused states apart, and what a verifier is to blame for that gives no result.

Revision: 0032, after 0031. A state that was asked for before is late when it would have been withheld.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def _created_at() -> "sa.Column[datetime]":
    now = sa.text("clock_timestamp()")
    return sa.Column("created_at", sa.DateTime(timezone=True), server_default=now, nullable=False)


def upgrade() -> None:
    op.add_column("leases", sa.Column("pulled_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("samples", sa.Column("reveal_until_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("samples", sa.Column("refusal", sa.String(64), nullable=True))
    op.execute("UPDATE samples SET reveal_until_at = reveal_deadline_at + (reveal_deadline_at - created_at)")
    op.add_column("replays", sa.Column("fault", sa.String(16), nullable=True))
    op.add_column("replays", sa.Column("fault_from", sa.DateTime(timezone=True), nullable=True))
    op.add_column("replays", sa.Column("fault_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("provider_epochs", sa.Column("refused", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "late_states",
        sa.Column("sample_id", sa.Integer(), nullable=False),
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(42), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("shown_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("booked", sa.String(16), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["sample_id"], ["samples.id"], name=op.f("fk_late_states_sample_id_samples")),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_late_states_unit_id_units")),
        sa.PrimaryKeyConstraint("sample_id", name=op.f("pk_late_states")),
    )
    op.create_index(op.f("ix_late_states_provider"), "late_states", ["provider"])
    op.create_index("ix_late_states_unbooked", "late_states", ["sample_id"], postgresql_where=sa.text("booked IS NULL"))
    op.create_table(
        "late_penalties",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(42), nullable=False),
        sa.Column("job_id", sa.String(66), nullable=False),
        sa.Column("evidence", sa.String(66), nullable=False),
        sa.Column("evidence_cid", sa.String(128), nullable=False),
        sa.Column("amount_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("tx", sa.String(66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_late_penalties_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_late_penalties")),
        sa.UniqueConstraint("evidence", name=op.f("uq_late_penalties_evidence")),
    )
    op.create_index(op.f("ix_late_penalties_provider"), "late_penalties", ["provider"])


def downgrade() -> None:
    op.drop_table("late_penalties")
    op.drop_table("late_states")
    op.drop_column("provider_epochs", "refused")
    op.drop_column("replays", "fault_until")
    op.drop_column("replays", "fault_from")
    op.drop_column("replays", "fault")
    op.drop_column("samples", "refusal")
    op.drop_column("samples", "reveal_until_at")
    op.drop_column("leases", "pulled_at")
