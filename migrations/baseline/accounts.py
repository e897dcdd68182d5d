"""Accounts, credentials, organisations and spending limits."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.baseline.parts import ADDRESS, HASH, JSONB, TIME, WEI, columns, created_at, table

table(
    "accounts",
    sa.Column("address", ADDRESS, primary_key=True),
    created_at(),
    sa.Column("roles", postgresql.ARRAY(sa.String(16)), nullable=False),
)

table(
    "idempotent_requests",
    sa.Column("caller", ADDRESS, primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("body_hash", HASH, nullable=False),
    sa.Column("status_code", sa.Integer, nullable=False),
    sa.Column("response", JSONB, nullable=False),
    created_at(),
)

table(
    "signer_nonces",
    sa.Column("signer", ADDRESS, primary_key=True),
    sa.Column("nonce", WEI, primary_key=True),
    sa.Column("used_for", HASH, nullable=False),
    created_at(),
)

table(
    "siwe_nonces",
    sa.Column("nonce", sa.String(32), primary_key=True),
    sa.Column("address", ADDRESS, nullable=False),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("used_at", TIME),
    created_at(),
)

table(
    "spending_limits",
    sa.Column("id", sa.Integer, primary_key=True),
    *columns(WEI, "per_job_wei", "per_day_wei", "total_wei"),
)

table(
    "credentials",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("secret_hash", HASH, nullable=False, unique=True),
    sa.Column("prefix", sa.String(16), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("address", ADDRESS, sa.ForeignKey("accounts.address"), nullable=False, index=True),
    sa.Column("expires_at", TIME, nullable=False),
    sa.Column("revoked_at", TIME),
    created_at(),
    sa.Column("scopes", postgresql.ARRAY(sa.String(32)), nullable=False),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id")),
)

table(
    "organisations",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id"), nullable=False),
    created_at(),
)

table(
    "spending",
    sa.Column("job_id", HASH, primary_key=True),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id"), primary_key=True),
    sa.Column("amount_wei", WEI, nullable=False),
    created_at(),
    sa.Index("ix_spending_limit_id_created_at", "limit_id", "created_at"),
)

table(
    "organisation_members",
    sa.Column("organisation_id", sa.Integer, sa.ForeignKey("organisations.id"), primary_key=True),
    sa.Column("address", ADDRESS, sa.ForeignKey("accounts.address"), primary_key=True, index=True),
    sa.Column("role", sa.String(8), nullable=False),
    sa.Column("limit_id", sa.Integer, sa.ForeignKey("spending_limits.id"), nullable=False),
    created_at(),
)
