"""Refusals of the auction."""

from market.platform.http.problem import MissingResource, UnprocessableRequest


class BookNotFound(MissingResource):
    code = "auction-book-not-found"
    title = "The order book does not exist"
    default_remedy = (
        "Name the book by tier and zone, such as bronze.eu-west. `zoo-compute auction books` (GET /v1/auctions) lists "
        "all books."
    )


class RoundNotFound(MissingResource):
    code = "auction-round-not-found"
    title = "The auction round does not exist"
    default_remedy = "Rounds of a book count from 0. The newest is at /v1/auctions/{book}/rounds/latest."


class HistoryTooLong(UnprocessableRequest):
    code = "history-span-invalid"
    title = "The time span does not fit the bucket"
    default_remedy = "Give a `from` before `to`, a shorter span or a larger bucket."
