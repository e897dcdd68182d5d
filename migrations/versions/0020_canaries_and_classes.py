"""Canaries, and replays of them.

Revision: 0020, after 0015.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "canaries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("state_cid", sa.String(length=128), nullable=False),
        sa.Column("start_leaf", sa.String(length=66), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_canaries_unit_id_units")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_canaries")),
        sa.UniqueConstraint("unit_id", "segment", name=op.f("uq_canaries_unit_id_segment")),
    )
    op.create_index(op.f("ix_canaries_status"), "canaries", ["status"])
    op.add_column("samples", sa.Column("canary_due", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.alter_column("replays", "sample_id", existing_type=sa.Integer(), nullable=True)
    op.add_column("replays", sa.Column("canary_id", sa.Integer(), nullable=True))
    op.create_foreign_key(op.f("fk_replays_canary_id_canaries"), "replays", "canaries", ["canary_id"], ["id"])
    op.create_unique_constraint(op.f("uq_replays_canary_id_verifier"), "replays", ["canary_id", "verifier"])
    op.create_check_constraint(op.f("ck_replays_of_one"), "replays", "(sample_id IS NULL) <> (canary_id IS NULL)")


def downgrade() -> None:
    # Who failed a canary lost its stake on chain: that row goes too, as in 0013.
    of_canary = "(SELECT id FROM replays WHERE canary_id IS NOT NULL)"
    op.execute(f"DELETE FROM slashes WHERE replay_id IN {of_canary}")
    op.execute(f"UPDATE leases SET replay_id = NULL WHERE replay_id IN {of_canary}")
    op.execute("DELETE FROM replays WHERE canary_id IS NOT NULL")
    op.drop_constraint(op.f("ck_replays_of_one"), "replays", type_="check")
    op.drop_column("replays", "canary_id")
    op.alter_column("replays", "sample_id", existing_type=sa.Integer(), nullable=False)
    op.drop_column("samples", "canary_due")
    op.drop_table("canaries")
