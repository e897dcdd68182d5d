"""Disputes, verdicts and challenges."""

import sqlalchemy as sa

from migrations.baseline.columns import JSONB, TIME, created_at, metadata

sa.Table(
    "disputes",
    metadata,
    sa.Column("id", sa.String(66), primary_key=True),
    sa.Column("unit_key", sa.String(66), nullable=False, index=True),
    sa.Column("provider", sa.String(42), nullable=False),
    sa.Column("challenger", sa.String(42), nullable=False),
    sa.Column("segments", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("step", sa.Integer),
    sa.Column("environment_class", sa.String(66)),
    sa.Column("states", JSONB),
    sa.Column("draw", sa.Integer, nullable=False),
    sa.Column("committee", JSONB),
    sa.Column("state_cid", sa.String(128)),
    sa.Column("opened_tx", sa.String(66), nullable=False),
    sa.Column("ended_tx", sa.String(66)),
    created_at(),
    sa.CheckConstraint(
        "status IN ('none', 'trace', 'step', 'drawing', 'judging', "
        "'provider_lost', 'challenger_lost', 'undecided', 'moot')",
        name="status",
    ),
    sa.Index("ix_disputes_open", "id", postgresql_where=sa.text("status IN ('trace', 'step', 'drawing', 'judging')")),
)

sa.Table(
    "withheld_units",
    metadata,
    sa.Column("unit_key", sa.String(66), primary_key=True),
    sa.Column("batch_id", sa.BigInteger, nullable=False),
)

sa.Table(
    "dispute_verdicts",
    metadata,
    sa.Column(
        "dispute_id",
        sa.String(66),
        sa.ForeignKey("disputes.id", name="fk_dispute_verdicts_dispute_id_disputes"),
        primary_key=True,
    ),
    sa.Column("draw", sa.Integer, primary_key=True),
    sa.Column("referee", sa.String(42), primary_key=True),
    sa.Column("provider_correct", sa.Boolean, nullable=False),
    sa.Column("reason", sa.String(32), nullable=False),
    sa.Column("signature", sa.String(132), nullable=False),
    created_at(),
)

sa.Table(
    "challenges",
    metadata,
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_challenges_unit_id_units"), primary_key=True),
    sa.Column("dispute_id", sa.String(66), nullable=False, unique=True),
    sa.Column("unit_key", sa.String(66), nullable=False),
    sa.Column("job_id", sa.String(66), nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("provider", sa.String(42), nullable=False),
    sa.Column("challenger", sa.String(42), nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("evidence_cid", sa.String(128), nullable=False),
    sa.Column("open_by", TIME, nullable=False),
    sa.Column("arguments", JSONB, nullable=False),
    sa.Column("convicted_in", sa.String(66)),
    created_at(),
    sa.Index("ix_challenges_open", "provider", postgresql_where=sa.text("status = 'open'")),
)
