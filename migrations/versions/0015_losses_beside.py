"""Checkpoints whose validation loss is not known yet.

Revision: 0015, after 0014.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("checkpoints", "validation_loss", existing_type=sa.String(length=32), nullable=True)


def downgrade() -> None:
    op.execute("UPDATE checkpoints SET validation_loss = '999999.000000' WHERE validation_loss IS NULL")
    op.alter_column("checkpoints", "validation_loss", existing_type=sa.String(length=32), nullable=False)
