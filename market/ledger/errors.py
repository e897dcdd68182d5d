"""Errors of the ledger."""

from market.platform.http.problem import MarketError


class LedgerError(Exception):
    """Base; ``code`` is stable."""

    code = "ledger_error"


class UnbalancedJournal(LedgerError):
    """The lines of a journal do not sum to zero."""

    code = "unbalanced_journal"


class JournalConflict(LedgerError):
    """The key of a journal already stands for other lines."""

    code = "journal_conflict"


class NotYetIndexed(LedgerError):
    """The ledger has not reached the block that it is asked about."""

    code = "not_yet_indexed"


class LedgerBehind(MarketError):
    """The ledger has not booked the block that it would be compared at."""

    status = 503
    code = "ledger-behind"
    title = "The ledger is behind the chain"
    default_remedy = "Ask again in a few seconds."
