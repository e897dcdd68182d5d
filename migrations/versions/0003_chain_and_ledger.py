"""The indexed chain, transactions, and the ledger with its triggers.

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from market.ledger.ddl import DROP_STATEMENTS, STATEMENTS

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chain_blocks",
        sa.Column("hash", sa.String(length=66), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("parent_hash", sa.String(length=66), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=False),
        sa.Column("canonical", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_chain_blocks")),
    )
    op.create_index(
        "uq_chain_blocks_canonical_number",
        "chain_blocks",
        ["number"],
        unique=True,
        postgresql_where=sa.text("canonical"),
    )
    op.create_table(
        "chain_cursor",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("head_number", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.String(length=66), nullable=False),
        sa.Column("finalised_number", sa.BigInteger(), nullable=False),
        sa.Column("finalised_hash", sa.String(length=66), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_chain_cursor_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chain_cursor")),
    )
    op.create_table(
        "ledger_journals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("block_number", sa.BigInteger(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_journals")),
        sa.UniqueConstraint("key", name=op.f("uq_ledger_journals_key")),
    )
    op.create_index(op.f("ix_ledger_journals_block_number"), "ledger_journals", ["block_number"], unique=False)
    op.create_table(
        "tx_intents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=128), nullable=False),
        sa.Column("contract", sa.String(length=32), nullable=True),
        sa.Column("function", sa.String(length=64), nullable=True),
        sa.Column("arguments", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("signer", sa.String(length=42), nullable=True),
        sa.Column("nonce", sa.BigInteger(), nullable=True),
        sa.Column("tx_hash", sa.String(length=66), nullable=True),
        sa.Column("block_number", sa.BigInteger(), nullable=True),
        sa.Column("block_hash", sa.String(length=66), nullable=True),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'signed', 'broadcast', 'mined', 'final', 'reverted')",
            name=op.f("ck_tx_intents_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tx_intents")),
        sa.UniqueConstraint("key", name=op.f("uq_tx_intents_key")),
    )
    op.create_index(
        "ix_tx_intents_open",
        "tx_intents",
        ["status", "id"],
        unique=False,
        postgresql_where=sa.text("status NOT IN ('final', 'reverted')"),
    )
    op.create_index(op.f("ix_tx_intents_subject"), "tx_intents", ["subject"], unique=False)
    op.create_index(
        "uq_tx_intents_nonce",
        "tx_intents",
        ["signer", "nonce"],
        unique=True,
        postgresql_where=sa.text("nonce IS NOT NULL"),
    )
    op.create_table(
        "chain_logs",
        sa.Column("block_hash", sa.String(length=66), nullable=False),
        sa.Column("log_index", sa.Integer(), nullable=False),
        sa.Column("tx_hash", sa.String(length=66), nullable=False),
        sa.Column("contract", sa.String(length=32), nullable=False),
        sa.Column("topics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["block_hash"], ["chain_blocks.hash"], name=op.f("fk_chain_logs_block_hash")),
        sa.PrimaryKeyConstraint("block_hash", "log_index", name=op.f("pk_chain_logs")),
    )
    op.create_index(op.f("ix_chain_logs_tx_hash"), "chain_logs", ["tx_hash"], unique=False)
    op.create_table(
        "ledger_postings",
        sa.Column("journal_id", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("account", sa.String(length=128), nullable=False),
        sa.Column("amount", sa.Numeric(78, 0), nullable=False),
        sa.CheckConstraint("amount <> 0", name=op.f("ck_ledger_postings_nonzero")),
        sa.ForeignKeyConstraint(["journal_id"], ["ledger_journals.id"], name=op.f("fk_ledger_postings_journal_id")),
        sa.PrimaryKeyConstraint("journal_id", "line", name=op.f("pk_ledger_postings")),
    )
    op.create_index("ix_ledger_postings_account", "ledger_postings", ["account", "journal_id"], unique=False)
    op.create_table(
        "tx_attempts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("intent_id", sa.BigInteger(), nullable=False),
        sa.Column("signer", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=66), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("gas_limit", sa.BigInteger(), nullable=False),
        sa.Column("max_fee", sa.Numeric(78, 0), nullable=False),
        sa.Column("priority_fee", sa.Numeric(78, 0), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("first_sent_block", sa.BigInteger(), nullable=True),
        sa.Column("last_sent_block", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["intent_id"], ["tx_intents.id"], name=op.f("fk_tx_attempts_intent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tx_attempts")),
        sa.UniqueConstraint("hash", name=op.f("uq_tx_attempts_hash")),
    )
    op.create_index(op.f("ix_tx_attempts_intent_id"), "tx_attempts", ["intent_id"], unique=False)
    op.create_index("ix_tx_attempts_signer_nonce", "tx_attempts", ["signer", "nonce"], unique=False)
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for statement in DROP_STATEMENTS:
        op.execute(statement)
    op.drop_index("ix_tx_attempts_signer_nonce", table_name="tx_attempts")
    op.drop_index(op.f("ix_tx_attempts_intent_id"), table_name="tx_attempts")
    op.drop_table("tx_attempts")
    op.drop_index("ix_ledger_postings_account", table_name="ledger_postings")
    op.drop_table("ledger_postings")
    op.drop_index(op.f("ix_chain_logs_tx_hash"), table_name="chain_logs")
    op.drop_table("chain_logs")
    op.drop_index("uq_tx_intents_nonce", table_name="tx_intents", postgresql_where=sa.text("nonce IS NOT NULL"))
    op.drop_index(op.f("ix_tx_intents_subject"), table_name="tx_intents")
    op.drop_index(
        "ix_tx_intents_open", table_name="tx_intents", postgresql_where=sa.text("status NOT IN ('final', 'reverted')")
    )
    op.drop_table("tx_intents")
    op.drop_index(op.f("ix_ledger_journals_block_number"), table_name="ledger_journals")
    op.drop_table("ledger_journals")
    op.drop_table("chain_cursor")
    op.drop_index("uq_chain_blocks_canonical_number", table_name="chain_blocks", postgresql_where=sa.text("canonical"))
    op.drop_table("chain_blocks")
