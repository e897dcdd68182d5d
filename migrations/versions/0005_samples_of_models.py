"""Samples of jobs' models, kept for an hour.

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

from migrations.baseline.parts import ADDRESS, CID, HASH, TIME, created_at

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "generations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("job_id", HASH, sa.ForeignKey("jobs.id"), nullable=False),
        sa.Column("account", ADDRESS, sa.ForeignKey("accounts.address"), nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("model_cid", CID, nullable=False),
        sa.Column("prompt", sa.Text, nullable=False),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("temperature", sa.Float, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("text", sa.Text),
        sa.Column("tokens", sa.Integer),
        sa.Column("failure", sa.String(32)),
        created_at(),
    )
    op.create_index("ix_generations_account", "generations", ["account", "created_at"])


def downgrade() -> None:
    op.drop_table("generations")
