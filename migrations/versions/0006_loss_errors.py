"""Standard errors of validation losses.

Revision: 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("validation_error", sa.String(32)))


def downgrade() -> None:
    op.drop_column("checkpoints", "validation_error")
