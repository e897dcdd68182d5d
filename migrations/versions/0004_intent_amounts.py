"""What a transaction moves, for the limits of the hot key; and the last comparison of the ledger with the chain.

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tx_intents", sa.Column("amount", sa.Numeric(78, 0), server_default=sa.text("0"), nullable=False))
    op.create_index("ix_tx_attempts_signer_created_at", "tx_attempts", ["signer", "created_at"], unique=False)
    op.create_table(
        "ledger_reconciliation",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("block_number", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("agrees", sa.Boolean(), nullable=False),
        sa.Column("difference", sa.Numeric(78, 0), nullable=False),
        sa.Column("report", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_ledger_reconciliation_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_reconciliation")),
    )


def downgrade() -> None:
    op.drop_table("ledger_reconciliation")
    op.drop_index("ix_tx_attempts_signer_created_at", table_name="tx_attempts")
    op.drop_column("tx_intents", "amount")
