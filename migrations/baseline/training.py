"""Units, leases, checkpoints, uploads and aggregation."""

import sqlalchemy as sa

from migrations.baseline.parts import ADDRESS, CID, HASH, JSONB, TIME, columns, created_at, index, reference, table

table(
    "aggregation_leaves",
    reference("aggregation_leaves", "job_id", "jobs.id", primary_key=True),
    *columns(sa.Integer, "round", "leaf", primary_key=True),
    sa.Column("seed", HASH, nullable=False),
    sa.Column("parts", JSONB, nullable=False),
    sa.Column("summary", JSONB),
    sa.Column("sum_cid", CID),
    created_at(),
)

table(
    "checkpoints",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", HASH, sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("round", sa.Integer, nullable=False),
    *columns(CID, "cid", "model_cid", nullable=False),
    sa.Column("file_cids", JSONB, nullable=False),
    sa.Column("rolled_back_to", sa.Integer),
    sa.Column("rollback_reason", sa.String(32)),
    sa.Column("validation_loss", sa.String(32)),
    created_at(),
    sa.UniqueConstraint("job_id", "round"),
    sa.Index("ix_checkpoints_file_cids", "file_cids", postgresql_using="gin"),
)

table(
    "units",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", HASH, sa.ForeignKey("jobs.id"), nullable=False, index=True),
    *columns(sa.Integer, "round", "slot", nullable=False),
    sa.Column("provider", ADDRESS, nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("start_checkpoint_cid", CID, nullable=False),
    sa.Column("start_slot_state_cid", CID, index=True),
    *columns(HASH, "probe", "trace_root", "payload_hash"),
    sa.Column("commitment_signature", sa.String(132)),
    sa.Column("leaves", JSONB),
    sa.Column("salt", HASH),
    *columns(CID, "payload_cid", "slot_state_cid", index=True),
    sa.Column("train_loss", sa.String(32)),
    sa.Column("included", sa.Boolean),
    sa.Column("exclusion_reason", sa.String(64)),
    sa.Column("window_id", sa.Integer, sa.ForeignKey("windows.id"), index=True),
    *columns(sa.Integer, "window_index", "sampling_bps"),
    *columns(TIME, "committed_at", "uploaded_at", "decided_at", "settled_at"),
    created_at(),
    reference("units", "settlement_id", "settlement_batches.id", index=True),
    sa.Column("settlement_reason", sa.String(64)),
    sa.Column("uploaded_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("payload_sha256", HASH),
    *columns(sa.Integer, "top_k", "rounds_late"),
    sa.Column("report", JSONB),
    sa.Column("start_slot_state_digest", HASH),
    sa.Column("start_restored_payload_cid", CID),
    sa.Column("slot_state_digest", HASH),
    sa.Column("slot_state_round", sa.Integer),
    sa.Column("slot_state_public", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("start_eager_payload_cid", CID),
    sa.Column("dispute_id", HASH),
    *columns(JSONB, "tolerated_segments", "doubts"),
    sa.Column("to_restore", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.CheckConstraint("settlement_id IS NULL OR status = 'verified'", name="only_verified_is_paid"),
    index("ix_units_probe", "job_id", "id", where="probe IS NOT NULL"),
    sa.Index("ix_units_provider_uploaded_at", "provider", "uploaded_at"),
    index("ix_units_slot_state_public", "id", where="slot_state_public"),
    sa.Index("ix_units_slot_state_round", "job_id", "slot_state_round"),
    index("ix_units_to_restore", "job_id", "slot", where="to_restore"),
    index("ix_units_unpaid", "job_id", "round", where="status = 'verified' AND settlement_id IS NULL"),
    index("ix_units_windowless", "committed_at", "id", where="window_id IS NULL AND commitment_signature IS NOT NULL"),
    index("uq_units_live", "job_id", "round", "slot", unique=True, where="status NOT IN ('lost', 'rejected')"),
)

table(
    "acknowledgements",
    reference("acknowledgements", "unit_id", "units.id", primary_key=True),
    sa.Column("leaf", HASH, nullable=False, unique=True),
    sa.Column("include_by", TIME, nullable=False),
    sa.Column("signature", sa.String(132), nullable=False),
    created_at(),
)

table(
    "pins",
    sa.Column("checkpoint_id", sa.Integer, sa.ForeignKey("checkpoints.id"), primary_key=True),
    sa.Column("provider", ADDRESS, primary_key=True),
    *columns(HASH, "nonce", "proof", nullable=False),
    created_at(),
)

table(
    "state_pins",
    reference("state_pins", "unit_id", "units.id", primary_key=True),
    sa.Column("provider", ADDRESS, primary_key=True),
    *columns(HASH, "nonce", "proof", nullable=False),
    created_at(),
)

table(
    "uploads",
    reference("uploads", "unit_id", "units.id", primary_key=True),
    sa.Column("purpose", sa.String(24), primary_key=True),
    sa.Column("cid", CID, nullable=False),
    *columns(sa.Boolean, "joined", "pinned_here", nullable=False),
    sa.Column("touched_at", TIME, nullable=False, index=True),
)

table(
    "upload_pieces",
    sa.Column("unit_id", sa.Integer, primary_key=True),
    sa.Column("purpose", sa.String(24), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("cid", CID, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.ForeignKeyConstraint(
        ["unit_id", "purpose"],
        ["uploads.unit_id", "uploads.purpose"],
        ondelete="CASCADE",
        name="fk_upload_pieces_unit_id_uploads",
    ),
)

table(
    "leases",
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("holder", ADDRESS, nullable=False),
    sa.Column("status", sa.String(8), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("token", HASH, nullable=False),
    sa.Column("task", JSONB, nullable=False),
    sa.Column("job_id", HASH, sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id"), index=True),
    sa.Column("replay_id", sa.Integer, sa.ForeignKey("replays.id")),
    sa.Column("checkpoint_id", sa.Integer, sa.ForeignKey("checkpoints.id")),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("expires_at", TIME, nullable=False, index=True),
    sa.Column("ended_at", TIME),
    created_at(),
    sa.Column("pulled_at", TIME),
    index("ix_leases_follow_checkpoint", "checkpoint_id", where="kind = 'follow'"),
    index("ix_leases_follow_holder", "holder", "created_at", where="kind = 'follow'"),
    index("ix_leases_open_holder", "holder", where="status IN ('offered', 'active')"),
    index("uq_leases_open_train", "unit_id", unique=True, where="kind = 'train' AND status IN ('offered', 'active')"),
)

table(
    "worker_memory",
    sa.Column("worker", sa.String(255), primary_key=True),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("seen_at", TIME, nullable=False),
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
