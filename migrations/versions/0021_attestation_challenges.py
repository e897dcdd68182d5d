"""Challenges that quotes of trusted environments are bound to.

Revision: 0021, after 0020.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attestation_challenges",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.String(length=66), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("measurement", sa.String(length=66), nullable=True),
        sa.Column("report", sa.String(length=66), nullable=True),
        sa.Column("report_cid", sa.String(length=128), nullable=True),
        sa.Column("attested_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider"], ["providers.address"], name=op.f("fk_attestation_challenges_provider_providers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attestation_challenges")),
    )
    op.create_index(op.f("ix_attestation_challenges_provider"), "attestation_challenges", ["provider"])
    op.create_index(
        "uq_attestation_challenges_open",
        "attestation_challenges",
        ["provider"],
        unique=True,
        postgresql_where=sa.text("answered_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("attestation_challenges")
