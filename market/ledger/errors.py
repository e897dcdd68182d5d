"""Errors of the ledger."""

from market.platform.http.problem import MarketError


class UnbalancedJournal(Exception):
    """The lines of a journal do not sum to zero."""


class JournalConflict(Exception):
    """Another journal has the key."""


class NotYetIndexed(Exception):
    """The ledger has not reached the requested block."""

    code = "not_yet_indexed"


class LedgerBehind(MarketError):
    """No comparison of the ledger with the chain is stored."""

    status = 503
    code = "ledger-behind"
    title = "The ledger has not been compared with the chain yet"
    default_remedy = "Repeat the request in a minute."
