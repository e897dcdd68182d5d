"""Settlement batches and their claims; the sampling rate of a job; attestations of providers.

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "settlement_batches",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("root", sa.String(length=66), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("claimable_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("vetoed", sa.Boolean(), nullable=False),
        sa.Column("fees_key", sa.String(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_settlement_batches_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_settlement_batches")),
        sa.UniqueConstraint("batch_id", name=op.f("uq_settlement_batches_batch_id")),
        sa.UniqueConstraint("root", name=op.f("uq_settlement_batches_root")),
    )
    op.create_index(op.f("ix_settlement_batches_claimable_at"), "settlement_batches", ["claimable_at"], unique=False)
    op.create_table(
        "settlement_claims",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("amount_wei", sa.Numeric(precision=78, scale=0), nullable=False),
        sa.Column("proof", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("claim_tx", sa.String(length=66), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["settlement_batches.job_id"], name=op.f("fk_settlement_claims_job_id_settlement_batches")
        ),
        sa.PrimaryKeyConstraint("job_id", "provider", name=op.f("pk_settlement_claims")),
    )
    op.create_index(
        "ix_settlement_claims_open",
        "settlement_claims",
        ["provider"],
        unique=False,
        postgresql_where=sa.text("claim_tx IS NULL"),
    )
    op.create_table(
        "attestations",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("measurement", sa.String(length=66), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("address", name=op.f("pk_attestations")),
    )
    op.create_index(op.f("ix_attestations_measurement"), "attestations", ["measurement"], unique=False)
    # Jobs of before were drawn at the network's floor of 2 %.
    op.add_column("jobs", sa.Column("sampling_bps", sa.Integer(), nullable=False, server_default="200"))
    op.alter_column("jobs", "sampling_bps", server_default=None)


def downgrade() -> None:
    op.drop_column("jobs", "sampling_bps")
    op.drop_table("attestations")
    op.drop_table("settlement_claims")
    op.drop_table("settlement_batches")
