"""Refusals of the auction."""

from market.platform.http.problem import MarketError


class BookNotFound(MarketError):
    status = 404
    code = "auction-book-not-found"
    title = "There is no such book"
    default_remedy = "A book is named by tier and zone, such as bronze.eu-west; GET /v1/auctions lists all books."


class RoundNotFound(MarketError):
    status = 404
    code = "auction-round-not-found"
    title = "There is no such auction round"
    default_remedy = "Rounds of a book count from 0; the newest is at /v1/auctions/{book}/rounds/latest."


class HistoryTooLong(MarketError):
    status = 422
    code = "history-span-invalid"
    title = "The span of time cannot be shown in these steps"
    default_remedy = "Let `from` be before `to`, and ask for a shorter span or a larger bucket."
