"""Tables of the ledger, append-only and balanced by triggers (``_TRIGGERS``)."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, String, Table, event, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped, mapped_column

from market.platform.db.base import Base, CreatedAt, UtcDateTime, Wei

# They run after ``create_all`` has created the tables; the migrations have a copy.
_TRIGGERS = (
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


class LedgerJournal(Base, CreatedAt):
    """Balanced entry. ``block_number`` is the block of the recorded event; None off chain."""

    __tablename__ = "ledger_journals"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    kind: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(200), unique=True)
    block_number: Mapped[int | None] = mapped_column(BigInteger, index=True)


class LedgerPosting(Base):
    """Line of a journal: ``amount`` wei into the account (negative: out of it)."""

    __tablename__ = "ledger_postings"
    __table_args__ = (
        Index("ix_ledger_postings_account", "account", "journal_id"),
        CheckConstraint("amount <> 0", name="nonzero"),
    )

    journal_id: Mapped[int] = mapped_column(ForeignKey(LedgerJournal.id), primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    account: Mapped[str] = mapped_column(String(128))
    amount: Mapped[int] = mapped_column(Wei)


class LedgerReconciliation(Base):
    """Last comparison of the ledger with the chain. One row."""

    __tablename__ = "ledger_reconciliation"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, default=1)
    block_number: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    agrees: Mapped[bool]
    difference_wei: Mapped[int] = mapped_column("difference", Wei)
    report: Mapped[dict[str, Any]] = mapped_column(JSONB)  # reconciliation.Reconciliation.as_json


@event.listens_for(LedgerPosting.__table__, "after_create")
def _guard(target: Table, connection: Connection, **_: Any) -> None:
    for statement in _TRIGGERS:
        connection.execute(text(statement))  # text() escapes the percent signs for the driver
