"""Providers, stakes, asks, benchmarks, attestation and uptime."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.baseline.columns import JSONB, TIME, WEI, created_at, metadata

sa.Table(
    "attestations",
    metadata,
    sa.Column("address", sa.String(42), primary_key=True),
    sa.Column("measurement", sa.String(66), nullable=False, index=True),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("gpus", postgresql.ARRAY(sa.String(None)), nullable=False, server_default="{}"),
)

sa.Table(
    "committed_periods",
    metadata,
    sa.Column("address", sa.String(42), primary_key=True),
    sa.Column("starts_at", TIME, primary_key=True),
    sa.Column("ends_at", TIME, nullable=False, index=True),
)

sa.Table(
    "judged_epochs",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("usual_nodes", sa.Integer, nullable=False),
    sa.Column("counted_minutes", sa.Integer, nullable=False),
    created_at(),
)

sa.Table(
    "provider_epochs",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("provider", sa.String(42), primary_key=True),
    sa.Column("up_minutes", sa.Integer, nullable=False),
    sa.Column("counted_minutes", sa.Integer, nullable=False),
    sa.Column("committed_up_minutes", sa.Integer, nullable=False),
    sa.Column("committed_minutes", sa.Integer, nullable=False),
    sa.Column("stake_minutes", WEI, nullable=False),
    sa.Column("served_bytes", sa.BigInteger, nullable=False),
    sa.Column("replays", sa.Integer, nullable=False),
    sa.Column("verified", sa.Integer, nullable=False),
    sa.Column("rejected", sa.Integer, nullable=False),
    sa.Column("lost", sa.Integer, nullable=False),
    sa.Column("slashes", sa.Integer, nullable=False),
    sa.Column("unreviewed", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("replayed_wei", WEI, nullable=False, server_default="0"),
    sa.Column("refused", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Index("ix_provider_epochs_unreviewed", "provider", postgresql_where=sa.text("unreviewed")),
)

sa.Table(
    "stakes",
    metadata,
    sa.Column("address", sa.String(42), primary_key=True),
    sa.Column("stake_wei", WEI, nullable=False),
    sa.Column("unbonding_wei", WEI, nullable=False),
    sa.Column("raised_at", TIME),
)

sa.Table(
    "providers",
    metadata,
    sa.Column("address", sa.String(42), sa.ForeignKey("accounts.address"), primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("region", sa.String(32), nullable=False),
    sa.Column("hardware", JSONB, nullable=False),
    sa.Column("environment_class", sa.String(66), nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("tier_id", sa.Integer),
    sa.Column("last_seen_at", TIME),
    created_at(),
    sa.Column("site", sa.String(64)),
    sa.Column("asn", sa.BigInteger),
    sa.Column("owner", sa.String(64)),
    sa.Column("round_trip_ms", sa.Integer),
    sa.Column("reliability_bps", sa.Integer, nullable=False, server_default=sa.text("8000")),
    sa.Column("forgiven_bps", sa.Integer),
    sa.Column("warned_at", TIME),
    sa.Column("disputed_at", TIME),
    sa.Column("rebenchmark_at", TIME),
    sa.Column("rebenchmark_by", TIME, index=True),
)

sa.Table(
    "asks",
    metadata,
    sa.Column("id", sa.String(66), primary_key=True),
    sa.Column("provider", sa.String(42), sa.ForeignKey("providers.address"), nullable=False, index=True),
    sa.Column("tier_id", sa.Integer, nullable=False),
    sa.Column("gpus", sa.Integer, nullable=False),
    sa.Column("min_price_wei", WEI, nullable=False),
    sa.Column("valid_until", TIME, nullable=False),
    sa.Column("nonce", WEI, nullable=False),
    sa.Column("signature", sa.String(132), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    created_at(),
    sa.Index("uq_asks_open_provider", "provider", unique=True, postgresql_where=sa.text("status = 'open'")),
)

sa.Table(
    "attestation_challenges",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column(
        "provider",
        sa.String(42),
        sa.ForeignKey("providers.address", name="fk_attestation_challenges_provider_providers"),
        nullable=False,
        index=True,
    ),
    sa.Column("nonce", sa.String(66), nullable=False),
    sa.Column("deadline_at", TIME, nullable=False),
    sa.Column("answered_at", TIME),
    sa.Column("measurement", sa.String(66)),
    sa.Column("report", sa.String(66)),
    sa.Column("report_cid", sa.String(128)),
    sa.Column("attested_until", TIME),
    sa.Column("created_at", TIME, nullable=False, server_default=sa.text("now()")),
    sa.Column("gpus", postgresql.ARRAY(sa.String(None)), nullable=False, server_default="{}"),
    sa.Index(
        "uq_attestation_challenges_open", "provider", unique=True, postgresql_where=sa.text("answered_at IS NULL")
    ),
)

sa.Table(
    "benchmark_runs",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("provider", sa.String(42), sa.ForeignKey("providers.address"), nullable=False, index=True),
    sa.Column("seed", sa.String(66), nullable=False),
    sa.Column("tier_id", sa.Integer, nullable=False),
    sa.Column("deadline_at", TIME, nullable=False),
    sa.Column("answered_at", TIME),
    sa.Column("answer_cid", sa.String(128)),
    sa.Column("passed", sa.Boolean),
    sa.Column("reason", sa.String(64)),
    sa.Column("flops_per_second", sa.BigInteger),
    created_at(),
    sa.Column("work", JSONB, nullable=False),
    sa.Column("nonce", sa.String(66)),
    sa.Column("started_at", TIME),
    sa.Column("commitment", sa.String(66)),
    sa.Column("committed_at", TIME),
    sa.Column("secret", sa.String(66)),
    sa.Index("ix_benchmark_runs_open", "provider", postgresql_where=sa.text("answered_at IS NULL")),
)

sa.Table(
    "downtime_penalties",
    metadata,
    sa.Column(
        "provider",
        sa.String(42),
        sa.ForeignKey("providers.address", name="fk_downtime_penalties_provider_providers"),
        primary_key=True,
    ),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("evidence", sa.String(66), nullable=False, unique=True),
    sa.Column("evidence_cid", sa.String(128), nullable=False),
    sa.Column("amount_wei", WEI),
    sa.Column("tx", sa.String(66)),
    created_at(),
)

sa.Table(
    "heartbeat_hours",
    metadata,
    sa.Column("hour", sa.BigInteger, primary_key=True),
    sa.Column(
        "provider",
        sa.String(42),
        sa.ForeignKey("providers.address", name="fk_heartbeat_hours_provider_providers"),
        primary_key=True,
    ),
    sa.Column("minutes", sa.BigInteger, nullable=False),
    sa.Column("stake_wei", WEI, nullable=False),
)
