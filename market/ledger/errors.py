"""Errors of the ledger."""

from market.platform.http.problem import MarketError


class LedgerError(Exception):
    """Base of the ledger's errors; ``code`` is stable."""

    code = "ledger_error"


class UnbalancedJournal(LedgerError):
    """The lines of a journal do not sum to zero."""

    code = "unbalanced_journal"


class JournalConflict(LedgerError):
    """Another journal has the key."""

    code = "journal_conflict"


class NotYetIndexed(LedgerError):
    """The ledger has not reached the requested block."""

    code = "not_yet_indexed"


class LedgerBehind(MarketError):
    """The ledger has not recorded the block of the comparison."""

    status = 503
    code = "ledger-behind"
    title = "The ledger is behind the chain"
    default_remedy = "Repeat the request in a few seconds."
