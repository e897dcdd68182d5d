"""Errors of lease calls."""

from market.platform.http.problem import Conflict, UnprocessableRequest


class LeaseLost(Conflict):
    """The token is wrong, or the lease has ended or expired."""

    code = "lease-lost"
    title = "You do not hold this lease"
    default_remedy = "Stop this work and ask for the next lease (POST /v1/leases/next)."


class WrongStep(Conflict):
    """The call does not fit the lease's kind or progress."""

    code = "wrong-step"
    title = "The lease does not take this call now"


class ResultRefused(UnprocessableRequest):
    """The result differs from the task or the commitment; ``reason`` has the broken rule."""

    code = "result-refused"
    title = "The result was refused"
    default_remedy = "Check the node: all but reveal leases end with this, and the work goes to another node."


class ReplayCommitted(Conflict):
    """The verifier committed another result for this replay, or the replay is over."""

    code = "replay-committed"
    title = "A replay's result is committed once"
    default_remedy = "Reveal the result that was committed first."


class ReplayNotCommitted(Conflict):
    code = "replay-not-committed"
    title = "The replay has no commitment"
    default_remedy = "Commit keccak(end_leaf || verifier || salt) first, with inner_digest after end_leaf if requested."


class ReplayMismatch(UnprocessableRequest):
    code = "replay-mismatch"
    title = "The result is not the committed one"
    default_remedy = "Send the end leaf, the salt and, if requested, the inner digest of the commitment."
