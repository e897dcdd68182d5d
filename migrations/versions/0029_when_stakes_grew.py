"""When a stake last grew: by lot are drawn first whose stake was there before the seed was known.

Revision: 0029, after 0027.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("stakes", sa.Column("raised_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("stakes", "raised_at")
