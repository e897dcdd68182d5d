"""Units, leases, checkpoints, uploads and aggregation."""

import sqlalchemy as sa

from migrations.baseline.columns import JSONB, TIME, created_at, metadata

sa.Table(
    "aggregation_leaves",
    metadata,
    sa.Column(
        "job_id", sa.String(66), sa.ForeignKey("jobs.id", name="fk_aggregation_leaves_job_id_jobs"), primary_key=True
    ),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("leaf", sa.Integer, primary_key=True),
    sa.Column("seed", sa.String(66), nullable=False),
    sa.Column("parts", JSONB, nullable=False),
    sa.Column("summary", JSONB),
    sa.Column("sum_cid", sa.String(128)),
    created_at(),
)

sa.Table(
    "checkpoints",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String(66), sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("cid", sa.String(128), nullable=False),
    sa.Column("model_cid", sa.String(128), nullable=False),
    sa.Column("file_cids", JSONB, nullable=False),
    sa.Column("validation_loss", sa.String(32)),
    created_at(),
    sa.UniqueConstraint("job_id", "round"),
    sa.Index("ix_checkpoints_file_cids", "file_cids", postgresql_using="gin"),
)

sa.Table(
    "units",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String(66), sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("provider", sa.String(42), nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("start_checkpoint_cid", sa.String(128), nullable=False),
    sa.Column("start_slot_state_cid", sa.String(128), index=True),
    sa.Column("trace_root", sa.String(66)),
    sa.Column("payload_hash", sa.String(66)),
    sa.Column("commitment_signature", sa.String(132)),
    sa.Column("leaves", JSONB),
    sa.Column("salt", sa.String(66)),
    sa.Column("payload_cid", sa.String(128), index=True),
    sa.Column("slot_state_cid", sa.String(128), index=True),
    sa.Column("train_loss", sa.String(32)),
    sa.Column("included", sa.Boolean),
    sa.Column("exclusion_reason", sa.String(64)),
    sa.Column("window_id", sa.Integer, sa.ForeignKey("windows.id"), index=True),
    sa.Column("window_index", sa.Integer),
    sa.Column("sampling_bps", sa.Integer),
    sa.Column("committed_at", TIME),
    sa.Column("uploaded_at", TIME),
    sa.Column("decided_at", TIME),
    sa.Column("settled_at", TIME),
    created_at(),
    sa.Column(
        "settlement_id",
        sa.Integer,
        sa.ForeignKey("settlement_batches.id", name="fk_units_settlement_id_settlement_batches"),
        index=True,
    ),
    sa.Column("settlement_reason", sa.String(64)),
    sa.Column("uploaded_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("payload_sha256", sa.String(66)),
    sa.Column("top_k", sa.Integer),
    sa.Column("rounds_late", sa.Integer),
    sa.Column("report", JSONB),
    sa.Column("start_slot_state_digest", sa.String(66)),
    sa.Column("start_restored_payload_cid", sa.String(128)),
    sa.Column("slot_state_digest", sa.String(66)),
    sa.Column("slot_state_round", sa.Integer),
    sa.Column("slot_state_public", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("start_eager_payload_cid", sa.String(128)),
    sa.Column("dispute_id", sa.String(66)),
    sa.Column("tolerated_segments", JSONB),
    sa.Column("doubts", JSONB),
    sa.Column("to_restore", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.CheckConstraint("settlement_id IS NULL OR status = 'verified'", name="only_verified_is_paid"),
    sa.Index("ix_units_provider_uploaded_at", "provider", "uploaded_at"),
    sa.Index("ix_units_slot_state_public", "id", postgresql_where=sa.text("slot_state_public")),
    sa.Index("ix_units_slot_state_round", "job_id", "slot_state_round"),
    sa.Index("ix_units_to_restore", "job_id", "slot", postgresql_where=sa.text("to_restore")),
    sa.Index(
        "ix_units_unpaid", "job_id", "round", postgresql_where=sa.text("status = 'verified' AND settlement_id IS NULL")
    ),
    sa.Index(
        "ix_units_windowless",
        "committed_at",
        "id",
        postgresql_where=sa.text("window_id IS NULL AND commitment_signature IS NOT NULL"),
    ),
    sa.Index(
        "uq_units_live",
        "job_id",
        "round",
        "slot",
        unique=True,
        postgresql_where=sa.text("status NOT IN ('lost', 'rejected')"),
    ),
)

sa.Table(
    "acknowledgements",
    metadata,
    sa.Column(
        "unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_acknowledgements_unit_id_units"), primary_key=True
    ),
    sa.Column("leaf", sa.String(66), nullable=False, unique=True),
    sa.Column("include_by", TIME, nullable=False),
    sa.Column("signature", sa.String(132), nullable=False),
    created_at(),
)

sa.Table(
    "pins",
    metadata,
    sa.Column("checkpoint_id", sa.Integer, sa.ForeignKey("checkpoints.id"), primary_key=True),
    sa.Column("provider", sa.String(42), primary_key=True),
    sa.Column("nonce", sa.String(66), nullable=False),
    sa.Column("proof", sa.String(66), nullable=False),
    created_at(),
)

sa.Table(
    "state_pins",
    metadata,
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_state_pins_unit_id_units"), primary_key=True),
    sa.Column("provider", sa.String(42), primary_key=True),
    sa.Column("nonce", sa.String(66), nullable=False),
    sa.Column("proof", sa.String(66), nullable=False),
    created_at(),
)

sa.Table(
    "uploads",
    metadata,
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_uploads_unit_id_units"), primary_key=True),
    sa.Column("purpose", sa.String(24), primary_key=True),
    sa.Column("cid", sa.String(128), nullable=False),
    sa.Column("joined", sa.Boolean, nullable=False),
    sa.Column("pinned_here", sa.Boolean, nullable=False),
    sa.Column("touched_at", TIME, nullable=False, index=True),
)

sa.Table(
    "upload_pieces",
    metadata,
    sa.Column("unit_id", sa.Integer, primary_key=True),
    sa.Column("purpose", sa.String(24), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("cid", sa.String(128), nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.ForeignKeyConstraint(
        ["unit_id", "purpose"],
        ["uploads.unit_id", "uploads.purpose"],
        ondelete="CASCADE",
        name="fk_upload_pieces_unit_id_uploads",
    ),
)

sa.Table(
    "leases",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("holder", sa.String(42), nullable=False),
    sa.Column("status", sa.String(8), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("token", sa.String(66), nullable=False),
    sa.Column("task", JSONB, nullable=False),
    sa.Column("job_id", sa.String(66), sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id"), index=True),
    sa.Column("replay_id", sa.Integer, sa.ForeignKey("replays.id")),
    sa.Column("checkpoint_id", sa.Integer, sa.ForeignKey("checkpoints.id")),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("expires_at", TIME, nullable=False, index=True),
    sa.Column("ended_at", TIME),
    created_at(),
    sa.Column("pulled_at", TIME),
    sa.Index("ix_leases_follow_checkpoint", "checkpoint_id", postgresql_where=sa.text("kind = 'follow'")),
    sa.Index("ix_leases_follow_holder", "holder", "created_at", postgresql_where=sa.text("kind = 'follow'")),
    sa.Index("ix_leases_open_holder", "holder", postgresql_where=sa.text("status IN ('offered', 'active')")),
    sa.Index(
        "uq_leases_open_train",
        "unit_id",
        unique=True,
        postgresql_where=sa.text("kind = 'train' AND status IN ('offered', 'active')"),
    ),
)

CREATE_TRIGGERS = (
    """
    CREATE FUNCTION units_keep_batch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM settlement_batches WHERE id = OLD.settlement_id AND void_reason IS NULL) THEN
            RAISE EXCEPTION 'unit % is in settlement batch %, which stands', OLD.id, OLD.settlement_id
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER units_keep_batch BEFORE UPDATE OF settlement_id ON units FOR EACH ROW
    WHEN (OLD.settlement_id IS NOT NULL AND NEW.settlement_id IS DISTINCT FROM OLD.settlement_id)
    EXECUTE FUNCTION units_keep_batch()
    """,
)

DROP_TRIGGERS = ("DROP TRIGGER units_keep_batch ON units", "DROP FUNCTION units_keep_batch")
