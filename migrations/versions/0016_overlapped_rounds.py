"""Spares that follow a job, and units that start before the round before theirs is joined.

Revision: 0016, after 0015.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_FOLLOW = sa.text("kind = 'follow'")


def upgrade() -> None:
    op.add_column("units", sa.Column("start_eager_payload_cid", sa.String(length=128), nullable=True))
    op.create_index("ix_leases_follow_checkpoint", "leases", ["checkpoint_id"], postgresql_where=_FOLLOW)
    op.create_index("ix_leases_follow_holder", "leases", ["holder", "created_at"], postgresql_where=_FOLLOW)


def downgrade() -> None:
    op.drop_index("ix_leases_follow_holder", table_name="leases")
    op.drop_index("ix_leases_follow_checkpoint", table_name="leases")
    op.drop_column("units", "start_eager_payload_cid")
