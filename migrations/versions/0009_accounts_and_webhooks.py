"""Roles, scopes, organisations, spending limits and webhooks; what payers may change about their jobs.

Revision: 0009, after 0008.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "spending_limits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("per_job_wei", sa.Numeric(precision=78, scale=0), nullable=True),
        sa.Column("per_day_wei", sa.Numeric(precision=78, scale=0), nullable=True),
        sa.Column("total_wei", sa.Numeric(precision=78, scale=0), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spending_limits")),
    )
    op.create_table(
        "organisations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["limit_id"], ["spending_limits.id"], name=op.f("fk_organisations_limit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organisations")),
    )
    op.create_table(
        "spending",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.Column("amount_wei", sa.Numeric(precision=78, scale=0), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["limit_id"], ["spending_limits.id"], name=op.f("fk_spending_limit_id")),
        sa.PrimaryKeyConstraint("job_id", "limit_id", name=op.f("pk_spending")),
    )
    op.create_index("ix_spending_limit_id_created_at", "spending", ["limit_id", "created_at"], unique=False)
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=42), nullable=False),
        sa.Column("url", sa.String(length=2048), nullable=False),
        sa.Column("kinds", postgresql.ARRAY(sa.String(length=32)), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("old_secret", sa.String(length=64), nullable=True),
        sa.Column("old_secret_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["owner"], ["accounts.address"], name=op.f("fk_webhook_endpoints_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    op.create_index(op.f("ix_webhook_endpoints_owner"), "webhook_endpoints", ["owner"], unique=False)
    op.create_table(
        "organisation_members",
        sa.Column("organisation_id", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(length=42), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["address"], ["accounts.address"], name=op.f("fk_organisation_members_address")),
        sa.ForeignKeyConstraint(["limit_id"], ["spending_limits.id"], name=op.f("fk_organisation_members_limit_id")),
        sa.ForeignKeyConstraint(
            ["organisation_id"], ["organisations.id"], name=op.f("fk_organisation_members_organisation_id")
        ),
        sa.PrimaryKeyConstraint("organisation_id", "address", name=op.f("pk_organisation_members")),
    )
    op.create_index(op.f("ix_organisation_members_address"), "organisation_members", ["address"], unique=False)
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("endpoint_id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.String(length=40), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(length=200), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["webhook_endpoints.id"], name=op.f("fk_webhook_deliveries_endpoint_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        sa.UniqueConstraint("endpoint_id", "event_id", name=op.f("uq_webhook_deliveries_endpoint_id_event_id")),
        sa.UniqueConstraint("message_id", name=op.f("uq_webhook_deliveries_message_id")),
    )
    op.create_index(
        "ix_webhook_deliveries_due",
        "webhook_deliveries",
        ["next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(op.f("ix_webhook_deliveries_endpoint_id"), "webhook_deliveries", ["endpoint_id"], unique=False)
    op.add_column(
        "accounts", sa.Column("roles", postgresql.ARRAY(sa.String(length=16)), nullable=False, server_default="{}")
    )
    op.execute("UPDATE accounts SET roles = '{admin}' WHERE is_admin")
    op.alter_column("accounts", "roles", server_default=None)
    op.drop_column("accounts", "is_admin")
    # Credentials of before had no limits.
    op.add_column(
        "credentials", sa.Column("scopes", postgresql.ARRAY(sa.String(length=32)), nullable=False, server_default="{*}")
    )
    op.alter_column("credentials", "scopes", server_default=None)
    op.add_column("credentials", sa.Column("limit_id", sa.Integer(), nullable=True))
    op.create_foreign_key(op.f("fk_credentials_limit_id"), "credentials", "spending_limits", ["limit_id"], ["id"])
    op.add_column("jobs", sa.Column("organisation_id", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("amended_max_price_wei", sa.Numeric(precision=78, scale=0), nullable=True))
    op.add_column("jobs", sa.Column("amended_wait_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("jobs", sa.Column("cancelled_by", sa.String(length=42), nullable=True))
    op.add_column("jobs", sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True))
    op.drop_index(op.f("ix_jobs_payer"), table_name="jobs")
    op.create_index(op.f("ix_jobs_organisation_id"), "jobs", ["organisation_id"], unique=False)
    op.create_index("ix_jobs_payer_created_at_id", "jobs", ["payer", "created_at", "id"], unique=False)
    op.create_foreign_key(op.f("fk_jobs_organisation_id"), "jobs", "organisations", ["organisation_id"], ["id"])


def downgrade() -> None:
    op.drop_index("ix_jobs_payer_created_at_id", table_name="jobs")
    op.create_index("ix_jobs_payer", "jobs", ["payer"])
    for column in ("paused_at", "cancelled_by", "amended_wait_until", "amended_max_price_wei", "organisation_id"):
        op.drop_column("jobs", column)
    op.drop_column("credentials", "limit_id")
    op.drop_column("credentials", "scopes")
    op.add_column("accounts", sa.Column("is_admin", sa.Boolean(), nullable=False, server_default="false"))
    op.execute("UPDATE accounts SET is_admin = 'admin' = ANY(roles)")
    op.alter_column("accounts", "is_admin", server_default=None)
    op.drop_column("accounts", "roles")
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_endpoints")
    op.drop_table("organisation_members")
    op.drop_table("spending")
    op.drop_table("organisations")
    op.drop_table("spending_limits")
