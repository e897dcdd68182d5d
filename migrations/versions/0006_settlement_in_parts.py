"""Settlement in parts: a batch pays units of many jobs, a job is paid by many batches, each unit by at most one.

Revision: 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from market.training.units.ddl import DROP_STATEMENTS, STATEMENTS

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.rename_table("settlement_claims", "old_settlement_claims")
    op.rename_table("settlement_batches", "old_settlement_batches")
    _rename_constraints("old_")
    _create_tables()
    op.add_column("units", sa.Column("settlement_id", sa.Integer(), nullable=True))
    op.add_column("units", sa.Column("settlement_reason", sa.String(length=64), nullable=True))
    _keep_batches()
    op.create_foreign_key(
        op.f("fk_units_settlement_id_settlement_batches"), "units", "settlement_batches", ["settlement_id"], ["id"]
    )
    op.create_index(op.f("ix_units_settlement_id"), "units", ["settlement_id"], unique=False)
    op.create_index(
        "ix_units_unpaid",
        "units",
        ["job_id", "round"],
        unique=False,
        postgresql_where=sa.text("status = 'verified' AND settlement_id IS NULL"),
    )
    op.create_check_constraint(
        op.f("ck_units_only_verified_is_paid"), "units", "settlement_id IS NULL OR status = 'verified'"
    )
    op.drop_table("old_settlement_claims")
    op.drop_table("old_settlement_batches")
    for statement in STATEMENTS:
        op.execute(statement)


def _rename_constraints(prefix: str) -> None:
    """Free the names of the old tables' constraints and indices for the new ones."""
    for table, names in (
        ("settlement_claims", ("pk_settlement_claims", "fk_settlement_claims_job_id_settlement_batches")),
        (
            "settlement_batches",
            ("pk_settlement_batches", "uq_settlement_batches_batch_id", "uq_settlement_batches_root"),
        ),
    ):
        for name in names:
            op.execute(f"ALTER TABLE {prefix}{table} RENAME CONSTRAINT {name} TO {prefix}{name}")
    for name in ("ix_settlement_batches_claimable_at", "ix_settlement_claims_open"):
        op.execute(f"ALTER INDEX {name} RENAME TO {prefix}{name}")


def _create_tables() -> None:
    op.create_table(
        "settlement_batches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("intent_key", sa.String(), nullable=True),
        sa.Column("root", sa.String(length=66), nullable=True),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("claimable_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("void_reason", sa.String(length=64), nullable=True),
        sa.Column("voided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fees_key", sa.String(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_settlement_batches")),
        sa.UniqueConstraint("intent_key", name=op.f("uq_settlement_batches_intent_key")),
        sa.UniqueConstraint("batch_id", name=op.f("uq_settlement_batches_batch_id")),
    )
    op.create_index(op.f("ix_settlement_batches_claimable_at"), "settlement_batches", ["claimable_at"], unique=False)
    op.create_index(
        "uq_settlement_batches_root",
        "settlement_batches",
        ["root"],
        unique=True,
        postgresql_where=sa.text("void_reason IS NULL"),
    )
    op.create_table(
        "settlement_lines",
        sa.Column("settlement_id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("from_round", sa.Integer(), nullable=False),
        sa.Column("to_round", sa.Integer(), nullable=False),
        sa.Column("last", sa.Boolean(), nullable=False),
        sa.Column("record_cid", sa.String(length=128), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_settlement_lines_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["settlement_id"],
            ["settlement_batches.id"],
            name=op.f("fk_settlement_lines_settlement_id_settlement_batches"),
        ),
        sa.PrimaryKeyConstraint("settlement_id", "job_id", name=op.f("pk_settlement_lines")),
    )
    op.create_index(op.f("ix_settlement_lines_job_id"), "settlement_lines", ["job_id"], unique=False)
    op.create_index(
        "uq_settlement_lines_pending",
        "settlement_lines",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "settlement_claims",
        sa.Column("settlement_id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("job_ids", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("amount_wei", sa.Numeric(precision=78, scale=0), nullable=False),
        sa.Column("proof", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("claim_tx", sa.String(length=66), nullable=True),
        sa.ForeignKeyConstraint(
            ["settlement_id"],
            ["settlement_batches.id"],
            name=op.f("fk_settlement_claims_settlement_id_settlement_batches"),
        ),
        sa.PrimaryKeyConstraint("settlement_id", "provider", name=op.f("pk_settlement_claims")),
    )
    op.create_index(
        "ix_settlement_claims_open",
        "settlement_claims",
        ["provider"],
        unique=False,
        postgresql_where=sa.text("claim_tx IS NULL"),
    )
    op.create_table(
        "contested_units",
        sa.Column("unit_key", sa.String(length=66), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("unit_key", name=op.f("pk_contested_units")),
    )


def _keep_batches() -> None:
    """Carry over what was settled and what is on its way: one batch with one line for each job that has a record."""
    op.execute(
        """
        INSERT INTO settlement_batches
            (intent_key, root, batch_id, claimable_at, void_reason, voided_at, fees_key, created_at)
        SELECT 'settle:' || j.id, o.root, o.batch_id, o.claimable_at,
               CASE WHEN o.vetoed THEN 'settlement_vetoed' WHEN i.status = 'reverted' THEN 'settlement_refused' END,
               CASE WHEN o.vetoed OR i.status = 'reverted' THEN clock_timestamp() END,
               o.fees_key, coalesce(o.created_at, i.created_at)
        FROM jobs j JOIN tx_intents i ON i.key = 'settle:' || j.id
        LEFT JOIN old_settlement_batches o ON o.job_id = j.id
        WHERE j.record_cid IS NOT NULL
        """
    )
    op.execute(
        """
        INSERT INTO settlement_lines (settlement_id, job_id, status, units, from_round, to_round, last, record_cid)
        SELECT b.id, j.id,
               CASE WHEN b.void_reason IS NOT NULL THEN 'void'
                    WHEN j.status = 'settled' THEN 'settled' ELSE 'pending' END,
               count(u.id), 0, coalesce(max(u.round) + 1, 0), true, j.record_cid
        FROM settlement_batches b JOIN jobs j ON b.intent_key = 'settle:' || j.id
        LEFT JOIN units u ON u.job_id = j.id AND u.status = 'verified'
        GROUP BY b.id, j.id
        """
    )
    op.execute(
        """
        UPDATE units u
        SET settlement_id = CASE WHEN b.void_reason IS NULL THEN b.id END, settlement_reason = b.void_reason
        FROM settlement_lines l JOIN settlement_batches b ON b.id = l.settlement_id
        WHERE u.job_id = l.job_id AND u.status = 'verified'
        """
    )
    op.execute(
        """
        INSERT INTO settlement_claims (settlement_id, provider, job_ids, amount_wei, proof, claim_tx)
        SELECT l.settlement_id, c.provider, jsonb_build_array(c.job_id), c.amount_wei, c.proof, c.claim_tx
        FROM old_settlement_claims c JOIN settlement_lines l ON l.job_id = c.job_id
        """
    )


def downgrade() -> None:
    """Back to one batch for each job. Batches of several jobs, and all but the newest of a job, have no place there."""
    for statement in DROP_STATEMENTS:
        op.execute(statement)
    op.drop_constraint(op.f("ck_units_only_verified_is_paid"), "units")
    op.drop_column("units", "settlement_reason")
    op.drop_column("units", "settlement_id")
    op.drop_table("contested_units")
    op.rename_table("settlement_claims", "new_settlement_claims")
    op.rename_table("settlement_batches", "new_settlement_batches")
    for table, names in (
        ("claims", ("pk_settlement_claims", "fk_settlement_claims_settlement_id_settlement_batches")),
        ("batches", ("pk_settlement_batches", "uq_settlement_batches_batch_id")),
    ):
        for name in names:
            op.execute(f"ALTER TABLE new_settlement_{table} RENAME CONSTRAINT {name} TO new_{name}")
    for name in ("ix_settlement_batches_claimable_at", "uq_settlement_batches_root", "ix_settlement_claims_open"):
        op.execute(f"ALTER INDEX {name} RENAME TO new_{name}")
    op.create_table(
        "settlement_batches",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("root", sa.String(length=66), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("claimable_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("vetoed", sa.Boolean(), nullable=False),
        sa.Column("fees_key", sa.String(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_settlement_batches_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_settlement_batches")),
        sa.UniqueConstraint("batch_id", name=op.f("uq_settlement_batches_batch_id")),
        sa.UniqueConstraint("root", name=op.f("uq_settlement_batches_root")),
    )
    op.create_index(op.f("ix_settlement_batches_claimable_at"), "settlement_batches", ["claimable_at"], unique=False)
    op.create_table(
        "settlement_claims",
        sa.Column("job_id", sa.String(length=66), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("amount_wei", sa.Numeric(precision=78, scale=0), nullable=False),
        sa.Column("proof", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("claim_tx", sa.String(length=66), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["settlement_batches.job_id"], name=op.f("fk_settlement_claims_job_id_settlement_batches")
        ),
        sa.PrimaryKeyConstraint("job_id", "provider", name=op.f("pk_settlement_claims")),
    )
    op.create_index(
        "ix_settlement_claims_open",
        "settlement_claims",
        ["provider"],
        unique=False,
        postgresql_where=sa.text("claim_tx IS NULL"),
    )
    op.execute(
        """
        INSERT INTO settlement_batches (job_id, root, batch_id, claimable_at, vetoed, fees_key, created_at)
        SELECT DISTINCT ON (l.job_id) l.job_id, b.root, b.batch_id, b.claimable_at, false, b.fees_key, b.created_at
        FROM new_settlement_batches b JOIN settlement_lines l ON l.settlement_id = b.id
        WHERE b.root IS NOT NULL AND b.void_reason IS NULL
          AND (SELECT count(*) FROM settlement_lines o WHERE o.settlement_id = b.id) = 1
        ORDER BY l.job_id, b.id DESC
        """
    )
    op.execute(
        """
        INSERT INTO settlement_claims (job_id, provider, amount_wei, proof, claim_tx)
        SELECT s.job_id, c.provider, c.amount_wei, c.proof, c.claim_tx
        FROM settlement_batches s JOIN new_settlement_batches b ON b.root = s.root AND b.void_reason IS NULL
        JOIN new_settlement_claims c ON c.settlement_id = b.id
        """
    )
    op.drop_table("new_settlement_claims")
    op.drop_table("settlement_lines")
    op.drop_table("new_settlement_batches")
