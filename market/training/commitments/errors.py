"""Errors of unit commitments."""

from market.platform.http.problem import Conflict, MissingResource


class CommitmentChanged(Conflict):
    code = "commitment-changed"
    title = "A different result was committed before"
    default_remedy = "A commitment is final; complete the lease with the result first committed."


class CommitmentRepeated(Conflict):
    """An earlier unit has the same commitment; a leaf may appear once in all windows."""

    code = "commitment-repeated"
    title = "This commitment was made before"
    default_remedy = "Take a fresh salt for every lease, and commit to the payload's hash with it."


class CommitmentNotFound(MissingResource):
    code = "commitment-not-found"
    title = "There is no such commitment"
    default_remedy = "Check the id: the leaf of the commitment in its window's tree, 0x hex of 32 bytes."
