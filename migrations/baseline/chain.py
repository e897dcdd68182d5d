"""Blocks, logs, transaction intents and attempts, and the upload quota."""

import sqlalchemy as sa

from migrations.baseline.columns import JSONB, TIME, WEI, created_at, metadata

sa.Table(
    "blob_uploads",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("account", sa.String(42), nullable=False),
    sa.Column("cid", sa.String(128)),
    sa.Column("charged", sa.BigInteger, nullable=False),
    created_at(),
    sa.UniqueConstraint("account", "cid"),
    sa.Index("ix_blob_uploads_account_created_at", "account", "created_at"),
    sa.Index("ix_blob_uploads_created_at", "created_at"),
)

sa.Table(
    "chain_blocks",
    metadata,
    sa.Column("hash", sa.String(66), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("parent_hash", sa.String(66), nullable=False),
    sa.Column("timestamp", sa.BigInteger, nullable=False),
    sa.Column("canonical", sa.Boolean, nullable=False),
    sa.Index("uq_chain_blocks_canonical_number", "number", unique=True, postgresql_where=sa.text("canonical")),
)

sa.Table(
    "chain_cursor",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("head_number", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.String(66), nullable=False),
    sa.Column("finalised_number", sa.BigInteger, nullable=False),
    sa.Column("finalised_hash", sa.String(66), nullable=False),
    sa.CheckConstraint("id = 1", name="single"),
)

sa.Table(
    "tx_intents",
    metadata,
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
    sa.Column("signer", sa.String(42)),
    sa.Column("nonce", sa.BigInteger),
    sa.Column("tx_hash", sa.String(66)),
    sa.Column("block_number", sa.BigInteger),
    sa.Column("block_hash", sa.String(66)),
    sa.Column("updated_at", TIME, nullable=False, server_default=sa.text("clock_timestamp()")),
    created_at(),
    sa.Column("amount", WEI, nullable=False, server_default=sa.text("0")),
    sa.Column("account", sa.String(42), nullable=False, server_default="operator"),
    sa.CheckConstraint("status IN ('queued', 'signed', 'broadcast', 'mined', 'final', 'reverted')", name="status"),
    sa.Index("ix_tx_intents_open", "status", "id", postgresql_where=sa.text("status NOT IN ('final', 'reverted')")),
    sa.Index("uq_tx_intents_nonce", "signer", "nonce", unique=True, postgresql_where=sa.text("nonce IS NOT NULL")),
)

sa.Table(
    "chain_logs",
    metadata,
    sa.Column("block_hash", sa.String(66), sa.ForeignKey("chain_blocks.hash"), primary_key=True),
    sa.Column("log_index", sa.Integer, primary_key=True),
    sa.Column("tx_hash", sa.String(66), nullable=False, index=True),
    sa.Column("contract", sa.String(32), nullable=False),
    sa.Column("topics", JSONB, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.Index("ix_chain_logs_topics", "topics", postgresql_using="gin", postgresql_ops={"topics": "jsonb_path_ops"}),
)

sa.Table(
    "tx_attempts",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("intent_id", sa.BigInteger, sa.ForeignKey("tx_intents.id"), nullable=False, index=True),
    sa.Column("signer", sa.String(42), nullable=False),
    sa.Column("nonce", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(66), nullable=False, unique=True),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Column("gas_limit", sa.BigInteger, nullable=False),
    sa.Column("max_fee", WEI, nullable=False),
    sa.Column("priority_fee", WEI, nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),
    sa.Column("first_sent_block", sa.BigInteger),
    sa.Column("last_sent_block", sa.BigInteger),
    sa.Column("last_error", sa.Text),
    created_at(),
    sa.Index("ix_tx_attempts_signer_created_at", "signer", "created_at"),
    sa.Index("ix_tx_attempts_signer_nonce", "signer", "nonce"),
)
