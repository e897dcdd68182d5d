"""Refusals of the auction."""

from market.api.problem import MarketError


class RoundNotFound(MarketError):
    status = 404
    code = "auction-round-not-found"
    title = "There is no such auction round"
    default_remedy = "Rounds of a tier count from 0; the newest is at /v1/auctions/{tier}/rounds/latest."
