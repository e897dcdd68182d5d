"""Database triggers that enforce the ledger's rules.

``STATEMENTS`` run after ``create_all`` has created the tables; the migrations have a copy.
"""

from sqlalchemy import text
from sqlalchemy.engine import Connection

STATEMENTS = (
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


def install(connection: Connection) -> None:
    """Create the triggers; the tables must exist."""
    for statement in STATEMENTS:
        connection.execute(text(statement))  # text() escapes the percent signs for the driver
