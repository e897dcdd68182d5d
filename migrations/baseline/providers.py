"""Providers, stakes, asks, benchmarks, attestation and uptime."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.baseline.parts import ADDRESS, CID, HASH, JSONB, TIME, WEI, columns, created_at, index, reference, table

table(
    "attestations",
    sa.Column("address", ADDRESS, primary_key=True),
    sa.Column("measurement", HASH, nullable=False, index=True),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("gpus", postgresql.ARRAY(sa.String(None)), nullable=False, server_default="{}"),
)

table(
    "committed_periods",
    sa.Column("address", ADDRESS, primary_key=True),
    sa.Column("starts_at", TIME, primary_key=True),
    sa.Column("ends_at", TIME, nullable=False, index=True),
)

table(
    "judged_epochs",
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    *columns(sa.Integer, "usual_nodes", "counted_minutes", nullable=False),
    created_at(),
)

table(
    "provider_epochs",
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("provider", ADDRESS, primary_key=True),
    *columns(sa.Integer, "up_minutes", "counted_minutes", "committed_up_minutes", "committed_minutes", nullable=False),
    sa.Column("stake_minutes", WEI, nullable=False),
    sa.Column("served_bytes", sa.BigInteger, nullable=False),
    *columns(sa.Integer, "replays", "verified", "rejected", "lost", "slashes", nullable=False),
    sa.Column("unreviewed", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("replayed_wei", WEI, nullable=False, server_default="0"),
    sa.Column("refused", sa.Integer, nullable=False, server_default=sa.text("0")),
    index("ix_provider_epochs_unreviewed", "provider", where="unreviewed"),
    sa.Index("ix_provider_epochs_provider_epoch", "provider", "epoch"),
)

table(
    "stakes",
    sa.Column("address", ADDRESS, primary_key=True),
    *columns(WEI, "stake_wei", "unbonding_wei", nullable=False),
    sa.Column("raised_at", TIME),
)

table(
    "providers",
    sa.Column("address", ADDRESS, sa.ForeignKey("accounts.address"), primary_key=True),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("region", sa.String(32), nullable=False),
    sa.Column("hardware", JSONB, nullable=False),
    sa.Column("environment_class", HASH, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("tier_id", sa.Integer),
    sa.Column("measured_mflops", sa.BigInteger),
    sa.Column("last_seen_at", TIME),
    created_at(),
    sa.Column("site", sa.String(64)),
    sa.Column("asn", sa.BigInteger),
    sa.Column("owner", sa.String(64)),
    sa.Column("round_trip_ms", sa.Integer),
    sa.Column("reliability_bps", sa.Integer, nullable=False, server_default=sa.text("8000")),
    sa.Column("forgiven_bps", sa.Integer),
    *columns(TIME, "warned_at", "disputed_at", "rebenchmark_at"),
    sa.Column("rebenchmark_by", TIME, index=True),
)

table(
    "asks",
    sa.Column("id", HASH, primary_key=True),
    sa.Column("provider", ADDRESS, sa.ForeignKey("providers.address"), nullable=False, index=True),
    *columns(sa.Integer, "tier_id", "gpus", nullable=False),
    sa.Column("min_price_wei", WEI, nullable=False),
    sa.Column("valid_until", TIME, nullable=False),
    sa.Column("nonce", WEI, nullable=False),
    sa.Column("signature", sa.String(132), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    created_at(),
    index("uq_asks_open_provider", "provider", unique=True, where="status = 'open'"),
)

table(
    "attestation_challenges",
    sa.Column("id", sa.String(36), primary_key=True),
    reference("attestation_challenges", "provider", "providers.address", nullable=False, index=True),
    sa.Column("nonce", HASH, nullable=False),
    sa.Column("deadline_at", TIME, nullable=False),
    sa.Column("answered_at", TIME),
    *columns(HASH, "measurement", "report"),
    sa.Column("report_cid", CID),
    sa.Column("attested_until", TIME),
    sa.Column("created_at", TIME, nullable=False, server_default=sa.text("now()")),
    sa.Column("gpus", postgresql.ARRAY(sa.String(None)), nullable=False, server_default="{}"),
    index("uq_attestation_challenges_open", "provider", unique=True, where="answered_at IS NULL"),
)

table(
    "benchmark_runs",
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("provider", ADDRESS, sa.ForeignKey("providers.address"), nullable=False, index=True),
    sa.Column("seed", HASH, nullable=False),
    sa.Column("tier_id", sa.Integer, nullable=False),
    sa.Column("deadline_at", TIME, nullable=False),
    sa.Column("answered_at", TIME),
    sa.Column("answer_cid", CID),
    sa.Column("passed", sa.Boolean),
    sa.Column("reason", sa.String(64)),
    sa.Column("flops_per_second", sa.BigInteger),
    created_at(),
    sa.Column("work", JSONB, nullable=False),
    sa.Column("nonce", HASH),
    sa.Column("started_at", TIME),
    sa.Column("commitment", HASH),
    sa.Column("committed_at", TIME),
    sa.Column("secret", HASH),
    index("ix_benchmark_runs_open", "provider", where="answered_at IS NULL"),
)

table(
    "downtime_penalties",
    reference("downtime_penalties", "provider", "providers.address", primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("evidence", HASH, nullable=False, unique=True),
    sa.Column("evidence_cid", CID, nullable=False),
    sa.Column("amount_wei", WEI),
    sa.Column("tx", HASH),
    created_at(),
)

table(
    "heartbeat_hours",
    sa.Column("hour", sa.BigInteger, primary_key=True),
    reference("heartbeat_hours", "provider", "providers.address", primary_key=True),
    sa.Column("minutes", sa.BigInteger, nullable=False),
    sa.Column("stake_wei", WEI, nullable=False),
)
