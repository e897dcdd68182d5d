"""First losses of the jobs that others continue.

Revision: 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("origin_loss", sa.String(32)))


def downgrade() -> None:
    op.drop_column("checkpoints", "origin_loss")
