"""Numbers of samples of validation losses.

Revision: 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("validation_samples", sa.Integer()))


def downgrade() -> None:
    op.drop_column("checkpoints", "validation_samples")
