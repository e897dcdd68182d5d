"""Journals and balances of the ledger."""

from collections.abc import Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.ledger.errors import JournalConflict, UnbalancedJournal
from market.ledger.models import LedgerJournal, LedgerPosting

Line = tuple[str, int]
"""(account, wei) into the account; negative: out of it."""


def post(session: Session, *, kind: str, key: str, lines: Sequence[Line], block: int | None) -> bool:
    """Write one balanced journal and return True; return False if it exists.

    Args:
        block: block of the recorded chain event; None off chain.

    Raises:
        UnbalancedJournal: the lines do not sum to zero, or there are fewer than two.
        JournalConflict: the key belongs to other lines.
    """
    if len(lines) < 2 or sum(amount for _, amount in lines) != 0:
        raise UnbalancedJournal(f"{kind} {key}: {len(lines)} lines sum to {sum(amount for _, amount in lines)} wei")
    journal = insert(LedgerJournal).values(kind=kind, key=key, block_number=block)
    made = journal.on_conflict_do_nothing(index_elements=[LedgerJournal.key]).returning(LedgerJournal.id)
    journal_id = session.scalar(made)
    if journal_id is None:
        if _lines_of(session, key) != list(lines):
            raise JournalConflict(f"journal {key} already has other lines")
        return False
    session.add_all(
        LedgerPosting(journal_id=journal_id, line=number, account=account, amount=amount)
        for number, (account, amount) in enumerate(lines)
    )
    session.flush()
    return True


def _lines_of(session: Session, key: str) -> list[Line]:
    query = select(LedgerPosting.account, LedgerPosting.amount).join(LedgerJournal).where(LedgerJournal.key == key)
    return list(session.execute(query.order_by(LedgerPosting.line)).tuples())


def balance(session: Session, account: str, *, until_block: int | None = None) -> int:
    """Return the balance of one account in wei, up to a block or of everything posted."""
    return balances(session, account, until_block=until_block).get(account, 0)


def balances(session: Session, *names: str, until_block: int | None = None) -> dict[str, int]:
    """Return the nonzero balances in wei of accounts and sub-accounts (``name:…``), or of all.

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
