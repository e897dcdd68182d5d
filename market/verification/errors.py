"""Refusals of verification."""

from market.api.problem import MarketError


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
