"""Units' records of their losses on validation samples.

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("units", sa.Column("evaluation", sa.String(512)))


def downgrade() -> None:
    op.drop_column("units", "evaluation")
