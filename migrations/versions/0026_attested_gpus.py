"""GPUs that attestations cover.

Revision: 0026, after 0024.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("attestations", "attestation_challenges"):
        op.add_column(table, sa.Column("gpus", sa.ARRAY(sa.String()), server_default="{}", nullable=False))


def downgrade() -> None:
    for table in ("attestations", "attestation_challenges"):
        op.drop_column(table, "gpus")
