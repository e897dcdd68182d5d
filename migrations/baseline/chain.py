"""Blocks, logs and transactions; audit and job events, webhooks, uploads and outages."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.baseline.parts import ADDRESS, CID, HASH, JSONB, TIME, WEI, columns, created_at, index, table

table(
    "blob_uploads",
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("account", ADDRESS, nullable=False),
    sa.Column("cid", CID),
    sa.Column("charged", sa.BigInteger, nullable=False),
    created_at(),
    sa.UniqueConstraint("account", "cid"),
    sa.Index("ix_blob_uploads_account_created_at", "account", "created_at"),
    sa.Index("ix_blob_uploads_created_at", "created_at"),
)

table(
    "chain_blocks",
    sa.Column("hash", HASH, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("parent_hash", HASH, nullable=False),
    sa.Column("timestamp", sa.BigInteger, nullable=False),
    sa.Column("canonical", sa.Boolean, nullable=False),
    index("uq_chain_blocks_canonical_number", "number", unique=True, where="canonical"),
)

table(
    "chain_cursor",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("head_number", sa.BigInteger, nullable=False),
    sa.Column("head_hash", HASH, nullable=False),
    sa.Column("finalised_number", sa.BigInteger, nullable=False),
    sa.Column("finalised_hash", HASH, nullable=False),
    sa.CheckConstraint("id = 1", name="single"),
)

table(
    "tx_intents",
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("key", sa.String(200), nullable=False, unique=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("subject", sa.String(128), nullable=False, index=True),
    sa.Column("contract", sa.String(32)),
    sa.Column("function", sa.String(64)),
    sa.Column("arguments", JSONB, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("detail", sa.Text),
    sa.Column("signer", ADDRESS),
    sa.Column("nonce", sa.BigInteger),
    sa.Column("tx_hash", HASH),
    sa.Column("block_number", sa.BigInteger),
    sa.Column("block_hash", HASH),
    sa.Column("updated_at", TIME, nullable=False, server_default=sa.text("clock_timestamp()")),
    created_at(),
    sa.Column("amount", WEI, nullable=False, server_default=sa.text("0")),
    sa.Column("account", ADDRESS, nullable=False, server_default="operator"),
    sa.CheckConstraint("status IN ('queued', 'signed', 'broadcast', 'mined', 'final', 'reverted')", name="status"),
    index("ix_tx_intents_open", "status", "id", where="status NOT IN ('final', 'reverted')"),
    index("uq_tx_intents_nonce", "signer", "nonce", unique=True, where="nonce IS NOT NULL"),
)

table(
    "chain_logs",
    sa.Column("block_hash", HASH, sa.ForeignKey("chain_blocks.hash"), primary_key=True),
    sa.Column("log_index", sa.Integer, primary_key=True),
    sa.Column("tx_hash", HASH, nullable=False, index=True),
    sa.Column("contract", sa.String(32), nullable=False),
    sa.Column("topics", JSONB, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Index("ix_chain_logs_topics", "topics", postgresql_using="gin", postgresql_ops={"topics": "jsonb_path_ops"}),
)

table(
    "tx_attempts",
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("intent_id", sa.BigInteger, sa.ForeignKey("tx_intents.id"), nullable=False, index=True),
    sa.Column("signer", ADDRESS, nullable=False),
    sa.Column("nonce", sa.BigInteger, nullable=False),
    sa.Column("hash", HASH, nullable=False, unique=True),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Column("gas_limit", sa.BigInteger, nullable=False),
    *columns(WEI, "max_fee", "priority_fee", nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),
    *columns(sa.BigInteger, "first_sent_block", "last_sent_block"),
    sa.Column("last_error", sa.Text),
    created_at(),
    sa.Index("ix_tx_attempts_signer_created_at", "signer", "created_at"),
    sa.Index("ix_tx_attempts_signer_nonce", "signer", "nonce"),
)

table(
    "audit_events",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("subject_kind", sa.String(16), nullable=False, index=True),
    sa.Column("subject_id", sa.String(80), nullable=False, index=True),
    sa.Column("event", sa.String(32), nullable=False),
    *columns(sa.String(16), "from_status", "to_status"),
    sa.Column("reason", sa.String(64)),
    sa.Column("actor", ADDRESS, nullable=False),
    sa.Column("data", JSONB, nullable=False),
    created_at(),
)

table(
    "job_events",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", HASH, nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("data", JSONB, nullable=False),
    sa.Column("announced_at", TIME),
    created_at(),
    sa.Index("ix_job_events_job_id_announced_at_id", "job_id", "announced_at", "id"),
    index("ix_job_events_steps", "created_at", where="kind = 'step'"),
    index("ix_job_events_unannounced", "id", where="announced_at IS NULL"),
)

table(
    "outages",
    sa.Column("part", sa.String(8), primary_key=True),
    sa.Column("starts_at", TIME, primary_key=True),
    sa.Column("ends_at", TIME, nullable=False, index=True),
)

table(
    "presences",
    sa.Column("part", sa.String(8), primary_key=True),
    sa.Column("seen_at", TIME, nullable=False),
)

table(
    "webhook_endpoints",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("owner", ADDRESS, sa.ForeignKey("accounts.address"), nullable=False, index=True),
    sa.Column("url", sa.String(2048), nullable=False),
    sa.Column("kinds", postgresql.ARRAY(sa.String(32)), nullable=False),
    sa.Column("secret", sa.String(64), nullable=False),
    sa.Column("old_secret", sa.String(64)),
    sa.Column("old_secret_until", TIME),
    sa.Column("enabled", sa.Boolean, nullable=False),
    *columns(TIME, "deleted_at", "busy_until"),
    created_at(),
)

table(
    "webhook_deliveries",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("endpoint_id", sa.Integer, sa.ForeignKey("webhook_endpoints.id"), nullable=False, index=True),
    sa.Column("event_id", sa.BigInteger, nullable=False),
    sa.Column("message_id", sa.String(40), nullable=False, unique=True),
    sa.Column("payload", JSONB, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_attempt_at", TIME, nullable=False),
    sa.Column("response_status", sa.Integer),
    sa.Column("error", sa.String(200)),
    sa.Column("delivered_at", TIME),
    created_at(),
    sa.UniqueConstraint("endpoint_id", "event_id"),
    index("ix_webhook_deliveries_due", "next_attempt_at", where="status = 'pending'"),
)
