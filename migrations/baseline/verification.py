"""Windows, samples, replays, canaries, slashes, disputes and verdicts."""

import sqlalchemy as sa

from migrations.baseline.parts import ADDRESS, CID, HASH, JSONB, TIME, WEI, columns, created_at, index, reference, table

table(
    "omission_claims",
    sa.Column("leaf", HASH, primary_key=True),
    sa.Column("provider", ADDRESS, nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    *columns(TIME, "include_by", "deadline", nullable=False),
    sa.Column("compensation_wei", WEI),
    sa.Column("tx", HASH),
    created_at(),
)

table(
    "windows",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("root", HASH, nullable=False, unique=True),
    sa.Column("leaf_count", sa.Integer, nullable=False),
    sa.Column("chain_id_in_contract", sa.BigInteger, unique=True),
    sa.Column("seed_block", sa.BigInteger),
    *columns(HASH, "seed", "commit_tx", "latch_tx"),
    created_at(),
    sa.Column("committed_at", TIME),
)

table(
    "class_drifts",
    sa.Column("id", sa.Integer, primary_key=True),
    reference("class_drifts", "job_id", "jobs.id", nullable=False),
    *columns(HASH, "provider_class", "verifier_class", nullable=False),
    sa.Column("whole", sa.Double, nullable=False),
    sa.Column("widest", sa.Double),
    created_at(),
    sa.Index("ix_class_drifts_pair", "job_id", "provider_class", "verifier_class"),
)

table(
    "late_penalties",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("provider", ADDRESS, nullable=False, index=True),
    reference("late_penalties", "job_id", "jobs.id", nullable=False),
    sa.Column("evidence", HASH, nullable=False, unique=True),
    sa.Column("evidence_cid", CID, nullable=False),
    sa.Column("amount_wei", WEI),
    sa.Column("tx", HASH),
    created_at(),
)

table(
    "canaries",
    sa.Column("id", sa.Integer, primary_key=True),
    reference("canaries", "unit_id", "units.id", nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("state_cid", CID),
    sa.Column("start_leaf", HASH, nullable=False),
    created_at(),
    sa.UniqueConstraint("unit_id", "segment"),
)

table(
    "samples",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id"), nullable=False, index=True),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    sa.Column("state_cid", CID, index=True),
    sa.Column("reveal_lease_id", sa.String(36)),
    sa.Column("reveal_deadline_at", TIME),
    created_at(),
    sa.Column("canary_due", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("inner_step", sa.Integer),
    sa.Column("inner_nonce", HASH),
    sa.Column("second_opinion", sa.Boolean, nullable=False, server_default=sa.text("false")),
    *columns(TIME, "reveal_until_at", "reveal_requested_at"),
    sa.Column("refusal", sa.String(64)),
    sa.UniqueConstraint("unit_id", "segment"),
)

table(
    "comparisons",
    sa.Column("id", sa.Integer, primary_key=True),
    reference("comparisons", "sample_id", "samples.id", nullable=False, unique=True),
    reference("comparisons", "unit_id", "units.id", nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("reason", sa.String(64)),
    *columns(CID, "computed_cid", "claimed_cid"),
    sa.Column("reveal_lease_id", sa.String(36)),
    sa.Column("reveal_deadline_at", TIME),
    *columns(sa.Double, "whole", "widest"),
    created_at(),
)

table(
    "late_states",
    reference("late_states", "sample_id", "samples.id", primary_key=True),
    reference("late_states", "unit_id", "units.id", nullable=False),
    sa.Column("provider", ADDRESS, nullable=False, index=True),
    sa.Column("due_at", TIME, nullable=False),
    sa.Column("shown_at", TIME),
    sa.Column("booked", sa.String(16)),
    created_at(),
    index("ix_late_states_unbooked", "sample_id", where="booked IS NULL"),
)

table(
    "replays",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("sample_id", sa.Integer, sa.ForeignKey("samples.id"), index=True),
    sa.Column("verifier", ADDRESS, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("result_hash", HASH),
    sa.Column("signature", sa.String(132)),
    *columns(HASH, "end_leaf", "salt"),
    created_at(),
    reference("replays", "canary_id", "canaries.id"),
    reference("replays", "comparison_id", "comparisons.id"),
    *columns(HASH, "environment_class", "inner_digest"),
    sa.Column("attempt", sa.Integer),
    sa.Column("fault", sa.String(16)),
    *columns(TIME, "fault_from", "fault_until"),
    sa.UniqueConstraint("canary_id", "verifier"),
    sa.UniqueConstraint("comparison_id", "verifier"),
    sa.UniqueConstraint("sample_id", "verifier"),
    sa.CheckConstraint("num_nonnulls(sample_id, canary_id, comparison_id) = 1", name="of_one"),
)

table(
    "slashes",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job_id", HASH, sa.ForeignKey("jobs.id"), nullable=False, index=True),
    sa.Column("unit_id", sa.Integer, sa.ForeignKey("units.id"), nullable=False),
    sa.Column("provider", ADDRESS, nullable=False, index=True),
    sa.Column("offence", sa.String(32), nullable=False),
    sa.Column("evidence", HASH, nullable=False, unique=True),
    sa.Column("evidence_cid", CID, nullable=False),
    sa.Column("amount_wei", WEI),
    sa.Column("tx", HASH),
    created_at(),
    reference("slashes", "replay_id", "replays.id", unique=True),
    sa.Column("path", sa.String(16), nullable=False, server_default="operator"),
    sa.Column("path_reason", sa.String(64)),
    sa.UniqueConstraint("unit_id", "provider"),
)

table(
    "disputes",
    sa.Column("id", HASH, primary_key=True),
    sa.Column("unit_key", HASH, nullable=False, index=True),
    *columns(ADDRESS, "provider", "challenger", nullable=False),
    sa.Column("segments", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("step", sa.Integer),
    sa.Column("environment_class", HASH),
    sa.Column("states", JSONB),
    sa.Column("draw", sa.Integer, nullable=False),
    sa.Column("committee", JSONB),
    sa.Column("state_cid", CID),
    sa.Column("opened_tx", HASH, nullable=False),
    sa.Column("ended_tx", HASH),
    created_at(),
    sa.CheckConstraint(
        "status IN ('none', 'trace', 'step', 'drawing', 'judging', "
        "'provider_lost', 'challenger_lost', 'undecided', 'moot')",
        name="status",
    ),
    index("ix_disputes_open", "id", where="status IN ('trace', 'step', 'drawing', 'judging')"),
)

table(
    "withheld_units",
    sa.Column("unit_key", HASH, primary_key=True),
    sa.Column("batch_id", sa.BigInteger, nullable=False),
)

table(
    "dispute_verdicts",
    reference("dispute_verdicts", "dispute_id", "disputes.id", primary_key=True),
    sa.Column("draw", sa.Integer, primary_key=True),
    sa.Column("referee", ADDRESS, primary_key=True),
    sa.Column("provider_correct", sa.Boolean, nullable=False),
    sa.Column("reason", sa.String(32), nullable=False),
    sa.Column("signature", sa.String(132), nullable=False),
    created_at(),
)

table(
    "challenges",
    reference("challenges", "unit_id", "units.id", primary_key=True),
    sa.Column("dispute_id", HASH, nullable=False, unique=True),
    *columns(HASH, "unit_key", "job_id", nullable=False),
    *columns(sa.Integer, "round", "slot", nullable=False),
    *columns(ADDRESS, "provider", "challenger", nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(64)),
    sa.Column("evidence_cid", CID, nullable=False),
    sa.Column("open_by", TIME, nullable=False),
    sa.Column("arguments", JSONB, nullable=False),
    sa.Column("convicted_in", HASH),
    created_at(),
    index("ix_challenges_open", "provider", where="status = 'open'"),
)
