"""Refusals of the settlement feature."""

from market.platform.http.problem import MarketError


class NotSettledYet(MarketError):
    status = 409
    code = "not-settled-yet"
    title = "Not settled yet"
