"""Results of leases: records of the final model's losses.

Revision: 0009, after 0008.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leases", sa.Column("result", sa.String(512)))


def downgrade() -> None:
    op.drop_column("leases", "result")
