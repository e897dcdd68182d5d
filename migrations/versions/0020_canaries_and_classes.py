"""Canaries and comparisons across environment classes, and replays of both.

Revision: 0020, after 0019.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0019"
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
    _create_comparisons()
    op.create_check_constraint(
        op.f("ck_replays_of_one"), "replays", "num_nonnulls(sample_id, canary_id, comparison_id) = 1"
    )


def _create_comparisons() -> None:
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sample_id", sa.Integer(), nullable=False),
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("computed_cid", sa.String(length=128), nullable=True),
        sa.Column("claimed_cid", sa.String(length=128), nullable=True),
        sa.Column("reveal_lease_id", sa.String(length=36), nullable=True),
        sa.Column("reveal_deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("whole", sa.Float(), nullable=True),
        sa.Column("widest", sa.Float(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["sample_id"], ["samples.id"], name=op.f("fk_comparisons_sample_id_samples")),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_comparisons_unit_id_units")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparisons")),
        sa.UniqueConstraint("sample_id", name=op.f("uq_comparisons_sample_id")),
    )
    op.create_index(op.f("ix_comparisons_status"), "comparisons", ["status"])
    op.create_table(
        "class_drifts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("provider_class", sa.String(length=66), nullable=False),
        sa.Column("verifier_class", sa.String(length=66), nullable=False),
        sa.Column("whole", sa.Float(), nullable=False),
        sa.Column("widest", sa.Float(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_class_drifts_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_class_drifts")),
    )
    op.create_index("ix_class_drifts_pair", "class_drifts", ["job_id", "provider_class", "verifier_class"])
    op.add_column("replays", sa.Column("comparison_id", sa.Integer(), nullable=True))
    op.add_column("replays", sa.Column("environment_class", sa.String(length=66), nullable=True))
    op.create_foreign_key(
        op.f("fk_replays_comparison_id_comparisons"), "replays", "comparisons", ["comparison_id"], ["id"]
    )
    op.create_unique_constraint(op.f("uq_replays_comparison_id_verifier"), "replays", ["comparison_id", "verifier"])
    op.add_column("units", sa.Column("tolerated_segments", JSONB(), nullable=True))
    op.add_column("units", sa.Column("doubts", JSONB(), nullable=True))


def downgrade() -> None:
    # Who failed a canary lost its stake on chain: that row goes too, as in 0013.
    of_no_sample = "(SELECT id FROM replays WHERE sample_id IS NULL)"
    op.execute(f"DELETE FROM slashes WHERE replay_id IN {of_no_sample}")
    op.execute(f"UPDATE leases SET replay_id = NULL WHERE replay_id IN {of_no_sample}")
    op.execute("DELETE FROM replays WHERE sample_id IS NULL")
    op.drop_constraint(op.f("ck_replays_of_one"), "replays", type_="check")
    op.drop_column("units", "doubts")
    op.drop_column("units", "tolerated_segments")
    op.drop_column("replays", "environment_class")
    op.drop_column("replays", "comparison_id")
    op.drop_table("class_drifts")
    op.drop_table("comparisons")
    op.drop_column("replays", "canary_id")
    op.alter_column("replays", "sample_id", existing_type=sa.Integer(), nullable=False)
    op.drop_column("samples", "canary_due")
    op.drop_table("canaries")
