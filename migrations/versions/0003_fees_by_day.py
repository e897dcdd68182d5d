"""Index of settled jobs with their fees, for the treasury's history.

Revision: 0003, after 0002.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_jobs_settled_at", "jobs", ["settled_at"], postgresql_include=["tier_id", "fee_wei"])


def downgrade() -> None:
    op.drop_index("ix_jobs_settled_at", "jobs")
