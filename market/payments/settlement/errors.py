"""Refusals of the settlement feature."""

from market.platform.http.problem import Conflict


class NotSettledYet(Conflict):
    code = "not-settled-yet"
    title = "Not settled yet"
