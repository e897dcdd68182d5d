"""What wrong replays cost their verifiers, and what right ones are paid by.

Revision: 0013, after 0012.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("providers", sa.Column("warned_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "provider_epochs",
        sa.Column("replayed_wei", sa.Numeric(precision=78, scale=0), nullable=False, server_default="0"),
    )
    # Replays that are not paid yet were promised 0.01 ZEN: 125 % of this.
    op.execute("UPDATE provider_epochs SET replayed_wei = replays * 8000000000000000::numeric")
    op.add_column("slashes", sa.Column("replay_id", sa.Integer(), nullable=True))
    op.create_foreign_key(op.f("fk_slashes_replay_id_replays"), "slashes", "replays", ["replay_id"], ["id"])
    op.create_unique_constraint(op.f("uq_slashes_replay_id"), "slashes", ["replay_id"])
    op.drop_constraint(op.f("uq_slashes_unit_id"), "slashes", type_="unique")
    op.create_unique_constraint(op.f("uq_slashes_unit_id_provider"), "slashes", ["unit_id", "provider"])


def downgrade() -> None:
    op.execute("DELETE FROM slashes WHERE replay_id IS NOT NULL")
    op.drop_constraint(op.f("uq_slashes_unit_id_provider"), "slashes", type_="unique")
    op.create_unique_constraint(op.f("uq_slashes_unit_id"), "slashes", ["unit_id"])
    op.drop_column("slashes", "replay_id")
    op.drop_column("provider_epochs", "replayed_wei")
    op.drop_column("providers", "warned_at")
