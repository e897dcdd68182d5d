"""Errors of unit commitments."""

from market.platform.http.problem import Conflict, MissingResource


class CommitmentChanged(Conflict):
    code = "commitment-changed"
    title = "A different result was committed before"
    default_remedy = "A commitment is final; complete the lease with the result first committed."


class CommitmentTooEarly(Conflict):
    """No machine of the tier computes the unit in the time since its lease."""

    code = "commitment-too-early"
    title = "This unit cannot be computed in so short a time"
    default_remedy = "Compute the unit, and commit to its result after the named time."


class CommitmentRepeated(Conflict):
    """An earlier unit has the same commitment; a leaf may appear once in all windows."""

    code = "commitment-repeated"
    title = "This commitment was made before"
    default_remedy = "Take a fresh salt for every lease, and commit to the payload's hash with it."


class CommitmentNotFound(MissingResource):
    code = "commitment-not-found"
    title = "There is no such commitment"
    default_remedy = "Check the id: the leaf of the commitment in its window's tree, 0x hex of 32 bytes."
