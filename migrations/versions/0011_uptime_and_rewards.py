"""Uptime from heartbeats, what each node did by epoch, its reliability, downtime penalties, and rewards by proof.

Revision: 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_WEI = sa.Numeric(78, 0)
_TIME = sa.DateTime(timezone=True)
_ADDRESS = sa.String(length=42)
_HASH = sa.String(length=66)


def upgrade() -> None:
    op.add_column("providers", sa.Column("reliability_bps", sa.Integer(), server_default="8000", nullable=False))
    op.add_column("providers", sa.Column("forgiven_bps", sa.Integer(), nullable=True))
    op.add_column("units", sa.Column("uploaded_bytes", sa.BigInteger(), server_default="0", nullable=False))
    _uptime()
    _rewards()


def _uptime() -> None:
    op.create_table(
        "committed_periods",
        sa.Column("address", _ADDRESS, nullable=False),
        sa.Column("starts_at", _TIME, nullable=False),
        sa.Column("ends_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("address", "starts_at", name=op.f("pk_committed_periods")),
    )
    op.create_index(op.f("ix_committed_periods_ends_at"), "committed_periods", ["ends_at"])
    op.create_table(
        "heartbeat_hours",
        sa.Column("hour", sa.BigInteger(), nullable=False),
        _provider("heartbeat_hours"),
        sa.Column("minutes", sa.BigInteger(), nullable=False),
        sa.Column("stake_wei", _WEI, nullable=False),
        sa.PrimaryKeyConstraint("hour", "provider", name=op.f("pk_heartbeat_hours")),
    )
    op.create_table(
        "judged_epochs",
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("usual_nodes", sa.Integer(), nullable=False),
        sa.Column("counted_minutes", sa.Integer(), nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("epoch", name=op.f("pk_judged_epochs")),
    )
    minutes = ("up_minutes", "counted_minutes", "committed_up_minutes", "committed_minutes")
    counts = ("replays", "verified", "rejected", "lost", "slashes")
    op.create_table(
        "provider_epochs",
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("provider", _ADDRESS, nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in minutes),
        sa.Column("stake_minutes", _WEI, nullable=False),
        sa.Column("served_bytes", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in counts),
        sa.Column("unreviewed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("epoch", "provider", name=op.f("pk_provider_epochs")),
    )
    op.create_index(
        "ix_provider_epochs_unreviewed", "provider_epochs", ["provider"], postgresql_where=sa.text("unreviewed")
    )
    op.create_table(
        "downtime_penalties",
        _provider("downtime_penalties"),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("evidence", _HASH, nullable=False),
        sa.Column("evidence_cid", sa.String(length=128), nullable=False),
        sa.Column("amount_wei", _WEI, nullable=True),
        sa.Column("tx", _HASH, nullable=True),
        _created_at(),
        sa.PrimaryKeyConstraint("provider", "epoch", name=op.f("pk_downtime_penalties")),
        sa.UniqueConstraint("evidence", name=op.f("uq_downtime_penalties_evidence")),
    )


def _rewards() -> None:
    op.create_table(
        "reward_posts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("first_epoch", sa.BigInteger(), nullable=False),
        sa.Column("last_epoch", sa.BigInteger(), nullable=False),
        sa.Column("root", _HASH, nullable=False),
        *(sa.Column(name, _WEI, nullable=False) for name in ("base_wei", "bandwidth_wei", "verifier_wei", "total_wei")),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("claimable_at", _TIME, nullable=True),
        sa.Column("void_reason", sa.String(length=64), nullable=True),
        sa.Column("voided_at", _TIME, nullable=True),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reward_posts")),
        sa.UniqueConstraint("number", name=op.f("uq_reward_posts_number")),
    )
    op.create_index(
        "uq_reward_posts_first_epoch",
        "reward_posts",
        ["first_epoch"],
        unique=True,
        postgresql_where=sa.text("void_reason IS NULL"),
    )
    op.create_table(
        "reward_earnings",
        sa.Column("account", _ADDRESS, nullable=False),
        sa.Column("post_id", sa.Integer(), nullable=False),
        *(sa.Column(name, _WEI, nullable=False) for name in ("base_wei", "bandwidth_wei", "verifier_wei")),
        sa.ForeignKeyConstraint(["post_id"], ["reward_posts.id"], name=op.f("fk_reward_earnings_post_id_reward_posts")),
        sa.PrimaryKeyConstraint("account", "post_id", name=op.f("pk_reward_earnings")),
    )
    op.create_table(
        "reward_leaves",
        sa.Column("account", _ADDRESS, nullable=False),
        sa.Column("post_id", sa.Integer(), nullable=False),
        sa.Column("cumulative_wei", _WEI, nullable=False),
        sa.Column("proof", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["post_id"], ["reward_posts.id"], name=op.f("fk_reward_leaves_post_id_reward_posts")),
        sa.PrimaryKeyConstraint("account", "post_id", name=op.f("pk_reward_leaves")),
    )
    op.create_index(op.f("ix_reward_leaves_post_id"), "reward_leaves", ["post_id"])
    op.create_table(
        "reward_claims",
        sa.Column("account", _ADDRESS, nullable=False),
        sa.Column("claimed_wei", _WEI, nullable=False),
        sa.PrimaryKeyConstraint("account", name=op.f("pk_reward_claims")),
    )


def _provider(table: str) -> sa.Column[str]:
    key = sa.ForeignKey("providers.address", name=op.f(f"fk_{table}_provider_providers"))
    return sa.Column("provider", _ADDRESS, key, nullable=False)


def _created_at() -> sa.Column[object]:
    return sa.Column("created_at", _TIME, server_default=sa.text("clock_timestamp()"), nullable=False)


def downgrade() -> None:
    for table in ("reward_claims", "reward_leaves", "reward_earnings", "reward_posts"):
        op.drop_table(table)
    for table in ("downtime_penalties", "provider_epochs", "judged_epochs", "heartbeat_hours", "committed_periods"):
        op.drop_table(table)
    op.drop_column("units", "uploaded_bytes")
    op.execute("UPDATE providers SET status = 'registered' WHERE status = 'demoted'")
    op.drop_column("providers", "forgiven_bps")
    op.drop_column("providers", "reliability_bps")
