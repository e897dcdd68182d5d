"""Accounts, credentials, organisations and spending limits."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.baseline.columns import JSONB, TIME, WEI, created_at, metadata

sa.Table(
    "accounts",
    metadata,
    sa.Column("address", sa.String(42), primary_key=True),
    created_at(),
    sa.Column("roles", postgresql.ARRAY(sa.String(16)), nullable=False),
)

sa.Table(
    "idempotent_requests",
    metadata,
    sa.Column("caller", sa.String(42), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("body_hash", sa.String(66), nullable=False),
    sa.Column("status_code", sa.Integer, nullable=False),
    sa.Column("response", JSONB, nullable=False),
    created_at(),
)

sa.Table(
    "signer_nonces",
    metadata,
    sa.Column("signer", sa.String(42), primary_key=True),
    sa.Column("nonce", WEI, primary_key=True),
    sa.Column("used_for", sa.String(66), nullable=False),
    created_at(),
)

sa.Table(
    "siwe_nonces",
    metadata,
    sa.Column("nonce", sa.String(32), primary_key=True),
    sa.Column("address", sa.String(42), nullable=False),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("used_at", TIME),
    created_at(),
)

sa.Table(
    "spending_limits",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("per_job_wei", WEI),
    sa.Column("per_day_wei", WEI),
    sa.Column("total_wei", WEI),
)

sa.Table(
    "credentials",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("secret_hash", sa.String(66), nullable=False, unique=True),
    sa.Column("prefix", sa.String(16), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("address", sa.String(42), sa.ForeignKey("accounts.address"), nullable=False, index=True),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("revoked_at", TIME),
    created_at(),
    sa.Column("scopes", postgresql.ARRAY(sa.String(32)), nullable=False),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id")),
)

sa.Table(
    "organisations",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id"), nullable=False),
    created_at(),
)

sa.Table(
    "spending",
    metadata,
    sa.Column("job_id", sa.String(66), primary_key=True),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id"), primary_key=True),
    sa.Column("amount_wei", WEI, nullable=False),
    created_at(),
    sa.Index("ix_spending_limit_id_created_at", "limit_id", "created_at"),
)

sa.Table(
    "organisation_members",
    metadata,
    sa.Column("organisation_id", sa.Integer, sa.ForeignKey("organisations.id"), primary_key=True),
    sa.Column("address", sa.String(42), sa.ForeignKey("accounts.address"), primary_key=True, index=True),
    sa.Column("role", sa.String(8), nullable=False),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id"), nullable=False),
    created_at(),
)
