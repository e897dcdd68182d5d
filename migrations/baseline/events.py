"""Audit events, job events, webhooks and outages."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from migrations.baseline.columns import JSONB, TIME, created_at, metadata

sa.Table(
    "audit_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("subject_kind", sa.String(16), nullable=False, index=True),
    sa.Column("subject_id", sa.String(80), nullable=False, index=True),
    sa.Column("event", sa.String(32), nullable=False),
    sa.Column("from_status", sa.String(16)),
    sa.Column("to_status", sa.String(16)),
    sa.Column("reason", sa.String(64)),
    sa.Column("actor", sa.String(42), nullable=False),
    sa.Column("data", JSONB, nullable=False),
    created_at(),
)

sa.Table(
    "job_events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String(66), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("data", JSONB, nullable=False),
    sa.Column("announced_at", TIME),
    created_at(),
    sa.Index("ix_job_events_job_id_announced_at_id", "job_id", "announced_at", "id"),
    sa.Index("ix_job_events_steps", "created_at", postgresql_where=sa.text("kind = 'step'")),
    sa.Index("ix_job_events_unannounced", "id", postgresql_where=sa.text("announced_at IS NULL")),
)

sa.Table(
    "outages",
    metadata,
    sa.Column("part", sa.String(8), primary_key=True),
    sa.Column("starts_at", TIME, primary_key=True),
    sa.Column("ends_at", TIME, nullable=False, index=True),
)

sa.Table(
    "presences",
    metadata,
    sa.Column("part", sa.String(8), primary_key=True),
    sa.Column("seen_at", TIME, nullable=False),
)

sa.Table(
    "webhook_endpoints",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("owner", sa.String(42), sa.ForeignKey("accounts.address"), nullable=False, index=True),
    sa.Column("url", sa.String(2048), nullable=False),
    sa.Column("kinds", postgresql.ARRAY(sa.String(32)), nullable=False),
    sa.Column("secret", sa.String(64), nullable=False),
    sa.Column("old_secret", sa.String(64)),
    sa.Column("old_secret_until", TIME),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("deleted_at", TIME),
    sa.Column("busy_until", TIME),
    created_at(),
)

sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("endpoint_id", sa.Integer, sa.ForeignKey("webhook_endpoints.id"), nullable=False, index=True),
    sa.Column("event_id", sa.BigInteger, nullable=False),
    sa.Column("message_id", sa.String(40), nullable=False, unique=True),
    sa.Column("payload", JSONB, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_attempt_at", TIME, nullable=False),
    sa.Column("response_status", sa.Integer),
    sa.Column("error", sa.String(200)),
    sa.Column("delivered_at", TIME),
    created_at(),
    sa.UniqueConstraint("endpoint_id", "event_id"),
    sa.Index("ix_webhook_deliveries_due", "next_attempt_at", postgresql_where=sa.text("status = 'pending'")),
)
