"""Double-entry ledger. Triggers keep it append-only and balanced."""

import sqlalchemy as sa

from migrations.baseline.columns import JSONB, TIME, WEI, created_at, metadata

sa.Table(
    "ledger_journals",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("key", sa.String(200), nullable=False, unique=True),
    sa.Column("block_number", sa.BigInteger, index=True),
    created_at(),
)

sa.Table(
    "ledger_reconciliation",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("block_number", sa.BigInteger, nullable=False),
    sa.Column("at", TIME, nullable=False),
    sa.Column("agrees", sa.Boolean, nullable=False),
    sa.Column("difference", WEI, nullable=False),
    sa.Column("report", JSONB, nullable=False),
    sa.CheckConstraint("id = 1", name="single"),
)

sa.Table(
    "ledger_postings",
    metadata,
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
