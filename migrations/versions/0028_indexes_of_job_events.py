"""Indexes for reading a job's events in their order, and for forgetting old steps.

Revision: 0028, after 0027.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A reader asks each second for what follows one event, and a job of weeks has very many.
    op.create_index("ix_job_events_job_id_announced_at_id", "job_events", ["job_id", "announced_at", "id"])
    op.drop_index("ix_job_events_job_id", table_name="job_events")
    op.create_index("ix_job_events_steps", "job_events", ["created_at"], postgresql_where=sa.text("kind = 'step'"))


def downgrade() -> None:
    op.drop_index("ix_job_events_steps", table_name="job_events", postgresql_where=sa.text("kind = 'step'"))
    op.create_index("ix_job_events_job_id", "job_events", ["job_id"])
    op.drop_index("ix_job_events_job_id_announced_at_id", table_name="job_events")
