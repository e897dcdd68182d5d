"""Queries of the ledger."""

from sqlalchemy import func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.ledger.models import LedgerJournal, LedgerPosting


def insert_journal(session: Session, kind: str, key: str, block_number: int | None) -> int | None:
    """Insert a journal and return its id; None if the key exists."""
    values = {"kind": kind, "key": key, "block_number": block_number}
    statement = insert(LedgerJournal).values(values).on_conflict_do_nothing(index_elements=[LedgerJournal.key])
    return session.scalar(statement.returning(LedgerJournal.id))


def lines_of(session: Session, key: str) -> list[tuple[str, int]]:
    """Return the (account, wei) lines of a journal in order."""
    rows = session.execute(
        select(LedgerPosting.account, LedgerPosting.amount)
        .join(LedgerJournal, LedgerJournal.id == LedgerPosting.journal_id)
        .where(LedgerJournal.key == key)
        .order_by(LedgerPosting.line)
    )
    return [(account, amount) for account, amount in rows]


def balances(session: Session, *names: str, until_block: int | None = None) -> dict[str, int]:
    """Return the nonzero balances of accounts and sub-accounts (``name:…``); default: all.

    With ``until_block`` only journals of events up to that block count.
    """
    total = func.sum(LedgerPosting.amount)
    query = select(LedgerPosting.account, total).group_by(LedgerPosting.account).having(total != 0)
    if names:
        own = LedgerPosting.account
        query = query.where(or_(own.in_(names), *(own.startswith(f"{name}:", autoescape=True) for name in names)))
    if until_block is not None:
        query = query.join(LedgerJournal).where(LedgerJournal.block_number <= until_block)
    return {account: int(amount) for account, amount in session.execute(query.order_by(LedgerPosting.account))}
