"""Timelock operations, payouts under challenge, governance events and sent acts."""

import sqlalchemy as sa

from migrations.baseline.parts import ADDRESS, HASH, JSONB, TIME, WEI, columns, created_at, index, table

table(
    "governance_events",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("contract", sa.String(32), nullable=False),
    sa.Column("role", HASH),
    sa.Column("account", ADDRESS),
    sa.Column("operation_id", HASH),
    sa.Column("data", JSONB, nullable=False),
    sa.Column("tx_hash", HASH, nullable=False, index=True),
    sa.Column("log_index", sa.Integer, nullable=False),
    sa.Column("block_number", sa.BigInteger, nullable=False),
    sa.Column("at", TIME, nullable=False),
    sa.Column("at_deployment", sa.Boolean, nullable=False),
    sa.Column("acknowledged_by", ADDRESS),
    sa.Column("acknowledged_at", TIME),
    created_at(),
    sa.UniqueConstraint("tx_hash", "log_index"),
    index("ix_governance_events_role", "contract", "role", "account", where="role IS NOT NULL"),
    index("ix_governance_events_operation_id", "operation_id", where="operation_id IS NOT NULL"),
    index("ix_governance_events_open", "id", where="acknowledged_by IS NULL AND NOT at_deployment"),
)

table(
    "posted_payouts",
    sa.Column("kind", sa.String(8), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("root", HASH, nullable=False),
    *columns(WEI, "net_wei", "fee_wei", nullable=False),
    sa.Column("posted_at", TIME, nullable=False),
    sa.Column("posted_tx", HASH, nullable=False),
    sa.Column("claimable_at", TIME, nullable=False),
    sa.Column("vetoed_tx", HASH),
    created_at(),
    sa.Index("ix_posted_payouts_claimable_at", "claimable_at"),
)

table(
    "sent_acts",
    sa.Column("tx_hash", HASH, primary_key=True),
    sa.Column("act", sa.String(64), nullable=False),
    sa.Column("stage", sa.String(16), nullable=False),
    sa.Column("account", ADDRESS, nullable=False),
    created_at(),
)

table(
    "timelock_operations",
    sa.Column("id", HASH, primary_key=True),
    sa.Column("calls", JSONB, nullable=False),
    sa.Column("predecessor", HASH, nullable=False),
    sa.Column("salt", HASH, nullable=False),
    sa.Column("scheduled_at", TIME, nullable=False),
    sa.Column("scheduled_tx", HASH, nullable=False),
    sa.Column("ready_at", TIME, nullable=False),
    sa.Column("ended_at", TIME),
    sa.Column("ended_tx", HASH),
    sa.Column("executed", sa.Boolean, nullable=False),
    created_at(),
    index("ix_timelock_operations_pending", "ready_at", where="ended_at IS NULL"),
    sa.Index("ix_timelock_operations_scheduled_at", "scheduled_at"),
)
