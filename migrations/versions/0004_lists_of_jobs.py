"""Indexes for counts of jobs by status, and for the fate of the jobs of a period.

Revision: 0004, after 0003.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_jobs_status", "jobs", ["status"])
    flow = ["tier_id", "status", "funded_at", "matched_at"]
    op.create_index("ix_jobs_flow", "jobs", ["created_at"], postgresql_include=flow)


def downgrade() -> None:
    op.drop_index("ix_jobs_flow", "jobs")
    op.drop_index("ix_jobs_status", "jobs")
