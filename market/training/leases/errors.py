"""Refusals of calls that concern a lease."""

from market.platform.http.problem import MarketError


class LeaseLost(MarketError):
    """Wrong token, ended or expired: whoever calls no longer holds the lease."""

    status = 409
    code = "lease-lost"
    title = "You do not hold this lease"
    default_remedy = "Stop this work and ask for the next lease (POST /v1/leases/next)."


class WrongStep(MarketError):
    """The call does not fit what the lease is for, or how far it is."""

    status = 409
    code = "wrong-step"
    title = "The lease does not take this call now"


class ResultRefused(MarketError):
    """What was delivered is not what was asked or committed; the member ``reason`` tells which rule it breaks."""

    status = 422
    code = "result-refused"
    title = "The result was refused"
    default_remedy = "Check the node: all but reveal leases end with this, and the work goes to another node."


class ReplayCommitted(MarketError):
    """The verifier committed another result for this replay before, or the replay is over."""

    status = 409
    code = "replay-committed"
    title = "A replay's result is committed once"
    default_remedy = "Reveal the result that was committed first."


class ReplayNotCommitted(MarketError):
    """A result was revealed that was never committed."""

    status = 409
    code = "replay-not-committed"
    title = "The replay has no commitment"
    default_remedy = (
        "Commit keccak(end_leaf || verifier || salt) first, with inner_digest after end_leaf if one is asked for."
    )


class ReplayMismatch(MarketError):
    """What is revealed is not what was committed."""

    status = 422
    code = "replay-mismatch"
    title = "The result is not the committed one"
    default_remedy = (
        "Send the end leaf, the salt and, if one is asked for, the inner digest that the commitment was made from."
    )
