"""Journals and balances of the ledger."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from market.ledger import repository
from market.ledger.errors import JournalConflict, UnbalancedJournal
from market.ledger.models import LedgerPosting

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
    journal_id = repository.insert_journal(session, kind, key, block)
    if journal_id is None:
        if repository.lines_of(session, key) != list(lines):
            raise JournalConflict(f"journal {key} already has other lines")
        return False
    session.add_all(
        LedgerPosting(journal_id=journal_id, line=number, account=account, amount=amount)
        for number, (account, amount) in enumerate(lines)
    )
    session.flush()
    return True


def balance(session: Session, account: str, *, until_block: int | None = None) -> int:
    """Return the balance of one account in wei, up to a block or of everything posted."""
    return repository.balances(session, account, until_block=until_block).get(account, 0)


def balances(session: Session, *names: str, until_block: int | None = None) -> dict[str, int]:
    """Return the nonzero balances of accounts and sub-accounts in wei; default: all."""
    return repository.balances(session, *names, until_block=until_block)
