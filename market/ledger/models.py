"""Tables of the ledger, append-only and balanced by triggers (``market.ledger.ddl``)."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, String, Table, event
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped, mapped_column

from market.ledger import ddl
from market.platform.db.base import Base, CreatedAt, UtcDateTime, Wei


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
    ddl.install(connection)
