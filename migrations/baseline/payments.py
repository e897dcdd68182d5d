"""Settlement batches and reward posts."""

import sqlalchemy as sa

from migrations.baseline.columns import JSONB, TIME, WEI, created_at, metadata

sa.Table(
    "contested_units",
    metadata,
    sa.Column("unit_key", sa.String(66), primary_key=True),
    sa.Column("lost", sa.Boolean, nullable=False),
)

sa.Table(
    "reward_claims",
    metadata,
    sa.Column("account", sa.String(42), primary_key=True),
    sa.Column("claimed_wei", WEI, nullable=False),
)

sa.Table(
    "reward_posts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("first_epoch", sa.BigInteger, nullable=False),
    sa.Column("last_epoch", sa.BigInteger, nullable=False),
    sa.Column("root", sa.String(66), nullable=False),
    sa.Column("base_wei", WEI, nullable=False),
    sa.Column("bandwidth_wei", WEI, nullable=False),
    sa.Column("verifier_wei", WEI, nullable=False),
    sa.Column("total_wei", WEI, nullable=False),
    sa.Column("number", sa.BigInteger, unique=True),
    sa.Column("claimable_at", TIME),
    sa.Column("void_reason", sa.String(64)),
    sa.Column("voided_at", TIME),
    created_at(),
    sa.Index(
        "uq_reward_posts_first_epoch", "first_epoch", unique=True, postgresql_where=sa.text("void_reason IS NULL")
    ),
)

sa.Table(
    "settlement_batches",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("intent_key", sa.String(None), unique=True),
    sa.Column("root", sa.String(66)),
    sa.Column("batch_id", sa.BigInteger, unique=True),
    sa.Column("claimable_at", TIME, index=True),
    sa.Column("void_reason", sa.String(64)),
    sa.Column("voided_at", TIME),
    sa.Column("fees_key", sa.String(None)),
    created_at(),
    sa.Index("uq_settlement_batches_root", "root", unique=True, postgresql_where=sa.text("void_reason IS NULL")),
)

sa.Table(
    "reward_earnings",
    metadata,
    sa.Column("account", sa.String(42), primary_key=True),
    sa.Column(
        "post_id",
        sa.Integer,
        sa.ForeignKey("reward_posts.id", name="fk_reward_earnings_post_id_reward_posts"),
        primary_key=True,
    ),
    sa.Column("base_wei", WEI, nullable=False),
    sa.Column("bandwidth_wei", WEI, nullable=False),
    sa.Column("verifier_wei", WEI, nullable=False),
)

sa.Table(
    "reward_leaves",
    metadata,
    sa.Column("account", sa.String(42), primary_key=True),
    sa.Column(
        "post_id",
        sa.Integer,
        sa.ForeignKey("reward_posts.id", name="fk_reward_leaves_post_id_reward_posts"),
        primary_key=True,
        index=True,
    ),
    sa.Column("cumulative_wei", WEI, nullable=False),
    sa.Column("proof", JSONB, nullable=False),
)

sa.Table(
    "settlement_claims",
    metadata,
    sa.Column(
        "settlement_id",
        sa.Integer,
        sa.ForeignKey("settlement_batches.id", name="fk_settlement_claims_settlement_id_settlement_batches"),
        primary_key=True,
    ),
    sa.Column("provider", sa.String(42), primary_key=True),
    sa.Column("job_ids", JSONB, nullable=False),
    sa.Column("amount_wei", WEI, nullable=False),
    sa.Column("proof", JSONB, nullable=False),
    sa.Column("claim_tx", sa.String(66)),
    sa.Index("ix_settlement_claims_open", "provider", postgresql_where=sa.text("claim_tx IS NULL")),
)

sa.Table(
    "settlement_lines",
    metadata,
    sa.Column(
        "settlement_id",
        sa.Integer,
        sa.ForeignKey("settlement_batches.id", name="fk_settlement_lines_settlement_id_settlement_batches"),
        primary_key=True,
    ),
    sa.Column(
        "job_id",
        sa.String(66),
        sa.ForeignKey("jobs.id", name="fk_settlement_lines_job_id_jobs"),
        primary_key=True,
        index=True,
    ),
    sa.Column("status", sa.String(8), nullable=False),
    sa.Column("units", sa.Integer, nullable=False),
    sa.Column("from_round", sa.Integer, nullable=False),
    sa.Column("to_round", sa.Integer, nullable=False),
    sa.Column("last", sa.Boolean, nullable=False),
    sa.Column("record_cid", sa.String(128), nullable=False),
    sa.Index("uq_settlement_lines_pending", "job_id", unique=True, postgresql_where=sa.text("status = 'pending'")),
)
