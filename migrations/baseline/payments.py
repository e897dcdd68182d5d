"""Settlement batches, reward posts and the ledger, which triggers keep balanced."""

import sqlalchemy as sa

from migrations.baseline.parts import ADDRESS, CID, HASH, JSONB, TIME, WEI, columns, created_at, index, reference, table

table(
    "contested_units",
    sa.Column("unit_key", HASH, primary_key=True),
    sa.Column("lost", sa.Boolean, nullable=False),
)

table(
    "reward_claims",
    sa.Column("account", ADDRESS, primary_key=True),
    sa.Column("claimed_wei", WEI, nullable=False),
)

table(
    "reward_posts",
    sa.Column("id", sa.Integer, primary_key=True),
    *columns(sa.BigInteger, "first_epoch", "last_epoch", nullable=False),
    sa.Column("root", HASH, nullable=False),
    *columns(WEI, "base_wei", "bandwidth_wei", "verifier_wei", "total_wei", nullable=False),
    sa.Column("number", sa.BigInteger, unique=True),
    sa.Column("claimable_at", TIME),
    sa.Column("void_reason", sa.String(64)),
    sa.Column("voided_at", TIME),
    created_at(),
    index("uq_reward_posts_first_epoch", "first_epoch", unique=True, where="void_reason IS NULL"),
)

table(
    "settlement_batches",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("intent_key", sa.String(None), unique=True),
    sa.Column("root", HASH),
    sa.Column("batch_id", sa.BigInteger, unique=True),
    sa.Column("claimable_at", TIME, index=True),
    sa.Column("void_reason", sa.String(64)),
    sa.Column("voided_at", TIME),
    sa.Column("fees_key", sa.String(None)),
    created_at(),
    index("uq_settlement_batches_root", "root", unique=True, where="void_reason IS NULL"),
)

table(
    "reward_earnings",
    sa.Column("account", ADDRESS, primary_key=True),
    reference("reward_earnings", "post_id", "reward_posts.id", primary_key=True),
    *columns(WEI, "base_wei", "bandwidth_wei", "verifier_wei", nullable=False),
)

table(
    "reward_leaves",
    sa.Column("account", ADDRESS, primary_key=True),
    reference("reward_leaves", "post_id", "reward_posts.id", primary_key=True, index=True),
    sa.Column("cumulative_wei", WEI, nullable=False),
    sa.Column("proof", JSONB, nullable=False),
)

table(
    "settlement_claims",
    reference("settlement_claims", "settlement_id", "settlement_batches.id", primary_key=True),
    sa.Column("provider", ADDRESS, primary_key=True),
    sa.Column("job_ids", JSONB, nullable=False),
    sa.Column("amount_wei", WEI, nullable=False),
    sa.Column("proof", JSONB, nullable=False),
    sa.Column("claim_tx", HASH),
    index("ix_settlement_claims_open", "provider", where="claim_tx IS NULL"),
    sa.Index("ix_settlement_claims_provider", "provider"),
)

table(
    "settlement_lines",
    reference("settlement_lines", "settlement_id", "settlement_batches.id", primary_key=True),
    reference("settlement_lines", "job_id", "jobs.id", primary_key=True, index=True),
    sa.Column("status", sa.String(8), nullable=False),
    *columns(sa.Integer, "units", "from_round", "to_round", nullable=False),
    sa.Column("last", sa.Boolean, nullable=False),
    sa.Column("record_cid", CID, nullable=False),
    index("uq_settlement_lines_pending", "job_id", unique=True, where="status = 'pending'"),
)

table(
    "ledger_journals",
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("key", sa.String(200), nullable=False, unique=True),
    sa.Column("block_number", sa.BigInteger, index=True),
    created_at(),
)

table(
    "ledger_reconciliation",
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("block_number", sa.BigInteger, nullable=False),
    sa.Column("at", TIME, nullable=False),
    sa.Column("agrees", sa.Boolean, nullable=False),
    sa.Column("difference", WEI, nullable=False),
    sa.Column("report", JSONB, nullable=False),
    sa.CheckConstraint("id = 1", name="single"),
)

table(
    "ledger_postings",
    sa.Column("journal_id", sa.BigInteger, sa.ForeignKey("ledger_journals.id"), primary_key=True),
    sa.Column("line", sa.Integer, primary_key=True),
    sa.Column("account", sa.String(128), nullable=False),
    sa.Column("amount", WEI, nullable=False),
    sa.CheckConstraint("amount <> 0", name="nonzero"),
    sa.Index("ix_ledger_postings_account", "account", "journal_id"),
)

CREATE_TRIGGERS = (
    """
    CREATE FUNCTION ledger_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the ledger is append-only: % on % is refused; post a correcting journal instead',
            TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END $$
    """,
    """
    CREATE FUNCTION ledger_require_balance() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        journal bigint := to_jsonb(NEW) ->> TG_ARGV[0];
        lines bigint;
        total numeric;
    BEGIN
        SELECT count(*), coalesce(sum(amount), 0) INTO lines, total FROM ledger_postings WHERE journal_id = journal;
        IF lines < 2 OR total <> 0 THEN
            RAISE EXCEPTION 'ledger journal % has % postings that sum to %, not two or more that sum to zero',
                journal, lines, total USING ERRCODE = 'check_violation';
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER ledger_journals_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_journals
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change()
    """,
    """
    CREATE TRIGGER ledger_postings_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_postings
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change()
    """,
    """
    CREATE CONSTRAINT TRIGGER ledger_journals_balance AFTER INSERT ON ledger_journals
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_require_balance('id')
    """,
    """
    CREATE CONSTRAINT TRIGGER ledger_postings_balance AFTER INSERT ON ledger_postings
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_require_balance('journal_id')
    """,
)

DROP_TRIGGERS = (
    "DROP TRIGGER ledger_postings_balance ON ledger_postings",
    "DROP TRIGGER ledger_journals_balance ON ledger_journals",
    "DROP TRIGGER ledger_postings_append_only ON ledger_postings",
    "DROP TRIGGER ledger_journals_append_only ON ledger_journals",
    "DROP FUNCTION ledger_require_balance",
    "DROP FUNCTION ledger_refuse_change",
)
