"""Windows, samples, replays, canaries and slashes."""

import sqlalchemy as sa

from migrations.baseline.columns import TIME, WEI, created_at, metadata

sa.Table(
    "omission_claims",
    metadata,
    sa.Column("leaf", sa.String(66), primary_key=True),
    sa.Column("provider", sa.String(42), nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("include_by", TIME, nullable=False),
    sa.Column("deadline", TIME, nullable=False),
    sa.Column("compensation_wei", WEI),
    sa.Column("tx", sa.String(66)),
    created_at(),
)

sa.Table(
    "windows",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("root", sa.String(66), nullable=False, unique=True),
    sa.Column("leaf_count", sa.Integer, nullable=False),
    sa.Column("chain_id_in_contract", sa.BigInteger, unique=True),
    sa.Column("seed_block", sa.BigInteger),
    sa.Column("seed", sa.String(66)),
    sa.Column("commit_tx", sa.String(66)),
    sa.Column("latch_tx", sa.String(66)),
    created_at(),
    sa.Column("committed_at", TIME),
)

sa.Table(
    "class_drifts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String(66), sa.ForeignKey("jobs.id", name="fk_class_drifts_job_id_jobs"), nullable=False),
    sa.Column("provider_class", sa.String(66), nullable=False),
    sa.Column("verifier_class", sa.String(66), nullable=False),
    sa.Column("whole", sa.Double, nullable=False),
    sa.Column("widest", sa.Double),
    created_at(),
    sa.Index("ix_class_drifts_pair", "job_id", "provider_class", "verifier_class"),
)

sa.Table(
    "late_penalties",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("provider", sa.String(42), nullable=False, index=True),
    sa.Column("job_id", sa.String(66), sa.ForeignKey("jobs.id", name="fk_late_penalties_job_id_jobs"), nullable=False),
    sa.Column("evidence", sa.String(66), nullable=False, unique=True),
    sa.Column("evidence_cid", sa.String(128), nullable=False),
    sa.Column("amount_wei", WEI),
    sa.Column("tx", sa.String(66)),
    created_at(),
)

sa.Table(
    "canaries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_canaries_unit_id_units"), nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("state_cid", sa.String(128)),
    sa.Column("start_leaf", sa.String(66), nullable=False),
    created_at(),
    sa.UniqueConstraint("unit_id", "segment"),
)

sa.Table(
    "samples",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id"), nullable=False, index=True),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("state_cid", sa.String(128), index=True),
    sa.Column("reveal_lease_id", sa.String(36)),
    sa.Column("reveal_deadline_at", TIME),
    created_at(),
    sa.Column("canary_due", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("inner_step", sa.Integer),
    sa.Column("inner_nonce", sa.String(66)),
    sa.Column("second_opinion", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("reveal_until_at", TIME),
    sa.Column("reveal_requested_at", TIME),
    sa.Column("refusal", sa.String(64)),
    sa.UniqueConstraint("unit_id", "segment"),
)

sa.Table(
    "comparisons",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "sample_id",
        sa.Integer,
        sa.ForeignKey("samples.id", name="fk_comparisons_sample_id_samples"),
        nullable=False,
        unique=True,
    ),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_comparisons_unit_id_units"), nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("computed_cid", sa.String(128)),
    sa.Column("claimed_cid", sa.String(128)),
    sa.Column("reveal_lease_id", sa.String(36)),
    sa.Column("reveal_deadline_at", TIME),
    sa.Column("whole", sa.Double),
    sa.Column("widest", sa.Double),
    created_at(),
)

sa.Table(
    "late_states",
    metadata,
    sa.Column(
        "sample_id", sa.Integer, sa.ForeignKey("samples.id", name="fk_late_states_sample_id_samples"), primary_key=True
    ),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id", name="fk_late_states_unit_id_units"), nullable=False),
    sa.Column("provider", sa.String(42), nullable=False, index=True),
    sa.Column("due_at", TIME, nullable=False),
    sa.Column("shown_at", TIME),
    sa.Column("booked", sa.String(16)),
    created_at(),
    sa.Index("ix_late_states_unbooked", "sample_id", postgresql_where=sa.text("booked IS NULL")),
)

sa.Table(
    "replays",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("sample_id", sa.Integer, sa.ForeignKey("samples.id"), index=True),
    sa.Column("verifier", sa.String(42), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("result_hash", sa.String(66)),
    sa.Column("signature", sa.String(132)),
    sa.Column("end_leaf", sa.String(66)),
    sa.Column("salt", sa.String(66)),
    created_at(),
    sa.Column("canary_id", sa.Integer, sa.ForeignKey("canaries.id", name="fk_replays_canary_id_canaries")),
    sa.Column(
        "comparison_id", sa.Integer, sa.ForeignKey("comparisons.id", name="fk_replays_comparison_id_comparisons")
    ),
    sa.Column("environment_class", sa.String(66)),
    sa.Column("inner_digest", sa.String(66)),
    sa.Column("attempt", sa.Integer),
    sa.Column("fault", sa.String(16)),
    sa.Column("fault_from", TIME),
    sa.Column("fault_until", TIME),
    sa.UniqueConstraint("canary_id", "verifier"),
    sa.UniqueConstraint("comparison_id", "verifier"),
    sa.UniqueConstraint("sample_id", "verifier"),
    sa.CheckConstraint("num_nonnulls(sample_id, canary_id, comparison_id) = 1", name="of_one"),
)

sa.Table(
    "slashes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String(66), sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id"), nullable=False),
    sa.Column("provider", sa.String(42), nullable=False, index=True),
    sa.Column("offence", sa.String(32), nullable=False),
    sa.Column("evidence", sa.String(66), nullable=False, unique=True),
    sa.Column("evidence_cid", sa.String(128), nullable=False),
    sa.Column("amount_wei", WEI),
    sa.Column("tx", sa.String(66)),
    created_at(),
    sa.Column("replay_id", sa.Integer, sa.ForeignKey("replays.id", name="fk_slashes_replay_id_replays"), unique=True),
    sa.Column("path", sa.String(16), nullable=False, server_default="operator"),
    sa.Column("path_reason", sa.String(64)),
    sa.UniqueConstraint("unit_id", "provider"),
)
