"""Accounts, providers, auctions, events.

Revision: 0001, after nothing.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("address", name=op.f("pk_accounts")),
    )
    op.create_table(
        "auction_rounds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("tier_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("seed", sa.String(length=66), nullable=False),
        sa.Column("seed_hash", sa.String(length=66), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cleared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("price_wei", sa.Numeric(78, 0), nullable=True),
        sa.Column("rule", sa.String(length=16), nullable=True),
        sa.Column("book", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("matches", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_auction_rounds")),
        sa.UniqueConstraint("tier_id", "number", name=op.f("uq_auction_rounds_tier_id_number")),
    )
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("subject_kind", sa.String(length=16), nullable=False),
        sa.Column("subject_id", sa.String(length=80), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("from_status", sa.String(length=16), nullable=True),
        sa.Column("to_status", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("actor", sa.String(length=42), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index(op.f("ix_audit_events_subject_id"), "audit_events", ["subject_id"], unique=False)
    op.create_index(op.f("ix_audit_events_subject_kind"), "audit_events", ["subject_kind"], unique=False)
    op.create_table(
        "idempotent_requests",
        sa.Column("caller", sa.String(length=42), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_hash", sa.String(length=66), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("response", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("caller", "key", name=op.f("pk_idempotent_requests")),
    )
    op.create_table(
        "job_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_events")),
    )
    op.create_index(op.f("ix_job_events_job_id"), "job_events", ["job_id"], unique=False)
    op.create_index(
        "ix_job_events_unannounced",
        "job_events",
        ["id"],
        unique=False,
        postgresql_where=sa.text("announced_at IS NULL"),
    )
    op.create_table(
        "signer_nonces",
        sa.Column("signer", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.Numeric(78, 0), nullable=False),
        sa.Column("used_for", sa.String(length=66), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("signer", "nonce", name=op.f("pk_signer_nonces")),
    )
    op.create_table(
        "siwe_nonces",
        sa.Column("nonce", sa.String(length=32), nullable=False),
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("nonce", name=op.f("pk_siwe_nonces")),
    )
    op.create_table(
        "stakes",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("stake_wei", sa.Numeric(78, 0), nullable=False),
        sa.Column("unbonding_wei", sa.Numeric(78, 0), nullable=False),
        sa.PrimaryKeyConstraint("address", name=op.f("pk_stakes")),
    )
    op.create_table(
        "credentials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("secret_hash", sa.String(length=66), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["address"], ["accounts.address"], name=op.f("fk_credentials_address")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credentials")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_credentials_secret_hash")),
    )
    op.create_index(op.f("ix_credentials_address"), "credentials", ["address"], unique=False)
    op.create_table(
        "providers",
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("region", sa.String(length=32), nullable=False),
        sa.Column("hardware", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("environment_class", sa.String(length=66), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("tier_id", sa.Integer(), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["address"], ["accounts.address"], name=op.f("fk_providers_address")),
        sa.PrimaryKeyConstraint("address", name=op.f("pk_providers")),
    )
    op.create_index(op.f("ix_providers_status"), "providers", ["status"], unique=False)
    op.create_table(
        "asks",
        sa.Column("id", sa.String(length=66), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("tier_id", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("min_price_wei", sa.Numeric(78, 0), nullable=False),
        sa.Column("valid_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("nonce", sa.Numeric(78, 0), nullable=False),
        sa.Column("signature", sa.String(length=132), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["provider"], ["providers.address"], name=op.f("fk_asks_provider")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_asks")),
    )
    op.create_index(op.f("ix_asks_provider"), "asks", ["provider"], unique=False)
    op.create_index(
        "uq_asks_open_provider", "asks", ["provider"], unique=True, postgresql_where=sa.text("status = 'open'")
    )
    op.create_table(
        "benchmark_runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("seed", sa.String(length=66), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("tier_id", sa.Integer(), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("answer_cid", sa.String(length=128), nullable=True),
        sa.Column("passed", sa.Boolean(), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("flops_per_second", sa.BigInteger(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["provider"], ["providers.address"], name=op.f("fk_benchmark_runs_provider")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_benchmark_runs")),
    )
    op.create_index(op.f("ix_benchmark_runs_provider"), "benchmark_runs", ["provider"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_benchmark_runs_provider"), table_name="benchmark_runs")
    op.drop_table("benchmark_runs")
    op.drop_index("uq_asks_open_provider", table_name="asks", postgresql_where=sa.text("status = 'open'"))
    op.drop_index(op.f("ix_asks_provider"), table_name="asks")
    op.drop_table("asks")
    op.drop_index(op.f("ix_providers_status"), table_name="providers")
    op.drop_table("providers")
    op.drop_index(op.f("ix_credentials_address"), table_name="credentials")
    op.drop_table("credentials")
    op.drop_table("stakes")
    op.drop_table("siwe_nonces")
    op.drop_table("signer_nonces")
    op.drop_index(
        "ix_job_events_unannounced", table_name="job_events", postgresql_where=sa.text("announced_at IS NULL")
    )
    op.drop_index(op.f("ix_job_events_job_id"), table_name="job_events")
    op.drop_table("job_events")
    op.drop_table("idempotent_requests")
    op.drop_index(op.f("ix_audit_events_subject_kind"), table_name="audit_events")
    op.drop_index(op.f("ix_audit_events_subject_id"), table_name="audit_events")
    op.drop_table("audit_events")
    op.drop_table("auction_rounds")
    op.drop_table("accounts")
