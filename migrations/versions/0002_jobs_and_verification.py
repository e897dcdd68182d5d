"""Jobs, their units and leases, and verification.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "windows",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("root", sa.String(length=66), nullable=False),
        sa.Column("leaf_count", sa.Integer(), nullable=False),
        sa.Column("chain_id_in_contract", sa.BigInteger(), nullable=True),
        sa.Column("seed_block", sa.BigInteger(), nullable=True),
        sa.Column("seed", sa.String(length=66), nullable=True),
        sa.Column("commit_tx", sa.String(length=66), nullable=True),
        sa.Column("latch_tx", sa.String(length=66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_windows")),
        sa.UniqueConstraint("chain_id_in_contract", name=op.f("uq_windows_chain_id_in_contract")),
        sa.UniqueConstraint("root", name=op.f("uq_windows_root")),
    )
    op.create_index(op.f("ix_windows_status"), "windows", ["status"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=66), nullable=False),
        sa.Column("payer", sa.String(length=42), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("spec_hash", sa.String(length=66), nullable=False),
        sa.Column("spec_cid", sa.String(length=128), nullable=False),
        sa.Column("tier_id", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("segments", sa.Integer(), nullable=False),
        sa.Column("checkpoint_interval", sa.Integer(), nullable=False),
        sa.Column("redundancy", sa.Integer(), nullable=False),
        sa.Column("requirements", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("units_ordered", sa.Integer(), nullable=False),
        sa.Column("unit_weight_us", sa.BigInteger(), nullable=False),
        sa.Column("budget_wei", sa.Numeric(78, 0), nullable=False),
        sa.Column("max_price_wei", sa.Numeric(78, 0), nullable=False),
        sa.Column("wait_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("nonce", sa.Numeric(78, 0), nullable=False),
        sa.Column("order_signature", sa.String(length=132), nullable=False),
        sa.Column("permit", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("escrowed_wei", sa.Numeric(78, 0), nullable=False),
        sa.Column("fee_bps", sa.Integer(), nullable=True),
        sa.Column("paid_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("fee_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("refund_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("open_tx", sa.String(length=66), nullable=True),
        sa.Column("settlement_tx", sa.String(length=66), nullable=True),
        sa.Column("clearing_price_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("auction_round_id", sa.Integer(), nullable=True),
        sa.Column("environment_class", sa.String(length=66), nullable=True),
        sa.Column("current_round", sa.Integer(), nullable=False),
        sa.Column("round_started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("record_cid", sa.String(length=128), nullable=True),
        sa.Column("funded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("matched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("first_step_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trained_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["auction_round_id"], ["auction_rounds.id"], name=op.f("fk_jobs_auction_round_id")),
        sa.ForeignKeyConstraint(["payer"], ["accounts.address"], name=op.f("fk_jobs_payer")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_payer"), "jobs", ["payer"], unique=False)
    op.create_index(op.f("ix_jobs_status"), "jobs", ["status"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("cid", sa.String(length=128), nullable=False),
        sa.Column("model_cid", sa.String(length=128), nullable=False),
        sa.Column("file_cids", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("validation_loss", sa.String(length=32), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("job_id", "round", name=op.f("uq_checkpoints_job_id_round")),
    )
    op.create_index(op.f("ix_checkpoints_job_id"), "checkpoints", ["job_id"], unique=False)
    op.create_table(
        "slots",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=True),
        sa.Column("error_feedback_cid", sa.String(length=128), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_slots_job_id")),
        sa.PrimaryKeyConstraint("job_id", "slot", name=op.f("pk_slots")),
    )
    op.create_index("uq_slots_provider", "slots", ["provider"], unique=True)
    op.create_table(
        "units",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("start_checkpoint_cid", sa.String(length=128), nullable=False),
        sa.Column("start_error_feedback_cid", sa.String(length=128), nullable=True),
        sa.Column("trace_root", sa.String(length=66), nullable=True),
        sa.Column("payload_hash", sa.String(length=66), nullable=True),
        sa.Column("commitment_signature", sa.String(length=132), nullable=True),
        sa.Column("leaves", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("salt", sa.String(length=66), nullable=True),
        sa.Column("payload_cid", sa.String(length=128), nullable=True),
        sa.Column("error_feedback_cid", sa.String(length=128), nullable=True),
        sa.Column("train_loss", sa.String(length=32), nullable=True),
        sa.Column("included", sa.Boolean(), nullable=True),
        sa.Column("exclusion_reason", sa.String(length=64), nullable=True),
        sa.Column("window_id", sa.Integer(), nullable=True),
        sa.Column("window_index", sa.Integer(), nullable=True),
        sa.Column("sampling_bps", sa.Integer(), nullable=True),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_units_job_id")),
        sa.ForeignKeyConstraint(["window_id"], ["windows.id"], name=op.f("fk_units_window_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_units")),
    )
    op.create_index(op.f("ix_units_job_id"), "units", ["job_id"], unique=False)
    op.create_index(op.f("ix_units_provider"), "units", ["provider"], unique=False)
    op.create_index(op.f("ix_units_status"), "units", ["status"], unique=False)
    op.create_index(op.f("ix_units_window_id"), "units", ["window_id"], unique=False)
    op.create_index(
        "uq_units_live",
        "units",
        ["job_id", "round", "slot"],
        unique=True,
        postgresql_where=sa.text("status NOT IN ('lost', 'rejected')"),
    )
    op.create_table(
        "pins",
        sa.Column("checkpoint_id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.String(length=66), nullable=False),
        sa.Column("proof", sa.String(length=66), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_pins_checkpoint_id")),
        sa.PrimaryKeyConstraint("checkpoint_id", "provider", name=op.f("pk_pins")),
    )
    op.create_table(
        "samples",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("state_cid", sa.String(length=128), nullable=True),
        sa.Column("reveal_lease_id", sa.String(length=36), nullable=True),
        sa.Column("reveal_deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_samples_unit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_samples")),
        sa.UniqueConstraint("unit_id", "segment", name=op.f("uq_samples_unit_id_segment")),
    )
    op.create_index(op.f("ix_samples_status"), "samples", ["status"], unique=False)
    op.create_index(op.f("ix_samples_unit_id"), "samples", ["unit_id"], unique=False)
    op.create_table(
        "slashes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("offence", sa.String(length=32), nullable=False),
        sa.Column("evidence", sa.String(length=66), nullable=False),
        sa.Column("evidence_cid", sa.String(length=128), nullable=False),
        sa.Column("amount_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("tx", sa.String(length=66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_slashes_job_id")),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_slashes_unit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slashes")),
        sa.UniqueConstraint("evidence", name=op.f("uq_slashes_evidence")),
        sa.UniqueConstraint("unit_id", name=op.f("uq_slashes_unit_id")),
    )
    op.create_index(op.f("ix_slashes_job_id"), "slashes", ["job_id"], unique=False)
    op.create_index(op.f("ix_slashes_provider"), "slashes", ["provider"], unique=False)
    op.create_table(
        "replays",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sample_id", sa.Integer(), nullable=False),
        sa.Column("verifier", sa.String(length=42), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("result_hash", sa.String(length=66), nullable=True),
        sa.Column("end_leaf", sa.String(length=66), nullable=True),
        sa.Column("salt", sa.String(length=66), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["sample_id"], ["samples.id"], name=op.f("fk_replays_sample_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replays")),
        sa.UniqueConstraint("sample_id", "verifier", name=op.f("uq_replays_sample_id_verifier")),
    )
    op.create_index(op.f("ix_replays_sample_id"), "replays", ["sample_id"], unique=False)
    op.create_table(
        "leases",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("holder", sa.String(length=42), nullable=False),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("token", sa.String(length=66), nullable=False),
        sa.Column("task", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("unit_id", sa.Integer(), nullable=True),
        sa.Column("replay_id", sa.Integer(), nullable=True),
        sa.Column("checkpoint_id", sa.Integer(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_leases_checkpoint_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_leases_job_id")),
        sa.ForeignKeyConstraint(["replay_id"], ["replays.id"], name=op.f("fk_leases_replay_id")),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_leases_unit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_expires_at"), "leases", ["expires_at"], unique=False)
    op.create_index(op.f("ix_leases_job_id"), "leases", ["job_id"], unique=False)
    op.create_index(
        "ix_leases_open_holder",
        "leases",
        ["holder"],
        unique=False,
        postgresql_where=sa.text("status IN ('offered','active')"),
    )
    op.create_index(op.f("ix_leases_status"), "leases", ["status"], unique=False)
    op.create_index(op.f("ix_leases_unit_id"), "leases", ["unit_id"], unique=False)
    op.create_index(
        "uq_leases_open_train",
        "leases",
        ["unit_id"],
        unique=True,
        postgresql_where=sa.text("kind = 'train' AND status IN ('offered','active')"),
    )


def downgrade() -> None:
    op.drop_index(
        "uq_leases_open_train",
        table_name="leases",
        postgresql_where=sa.text("kind = 'train' AND status IN ('offered','active')"),
    )
    op.drop_index(op.f("ix_leases_unit_id"), table_name="leases")
    op.drop_index(op.f("ix_leases_status"), table_name="leases")
    op.drop_index(
        "ix_leases_open_holder", table_name="leases", postgresql_where=sa.text("status IN ('offered','active')")
    )
    op.drop_index(op.f("ix_leases_job_id"), table_name="leases")
    op.drop_index(op.f("ix_leases_expires_at"), table_name="leases")
    op.drop_table("leases")
    op.drop_index(op.f("ix_replays_sample_id"), table_name="replays")
    op.drop_table("replays")
    op.drop_index(op.f("ix_slashes_provider"), table_name="slashes")
    op.drop_index(op.f("ix_slashes_job_id"), table_name="slashes")
    op.drop_table("slashes")
    op.drop_index(op.f("ix_samples_unit_id"), table_name="samples")
    op.drop_index(op.f("ix_samples_status"), table_name="samples")
    op.drop_table("samples")
    op.drop_table("pins")
    op.drop_index("uq_units_live", table_name="units", postgresql_where=sa.text("status NOT IN ('lost', 'rejected')"))
    op.drop_index(op.f("ix_units_window_id"), table_name="units")
    op.drop_index(op.f("ix_units_status"), table_name="units")
    op.drop_index(op.f("ix_units_provider"), table_name="units")
    op.drop_index(op.f("ix_units_job_id"), table_name="units")
    op.drop_table("units")
    op.drop_index("uq_slots_provider", table_name="slots")
    op.drop_table("slots")
    op.drop_index(op.f("ix_checkpoints_job_id"), table_name="checkpoints")
    op.drop_table("checkpoints")
    op.drop_index(op.f("ix_jobs_status"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_payer"), table_name="jobs")
    op.drop_table("jobs")
    op.drop_index(op.f("ix_windows_status"), table_name="windows")
    op.drop_table("windows")
