"""Refusals of jobs and leases; each code is stable and says which field is at fault and what to do."""

from market.api.problem import MarketError


class InvalidSpec(MarketError):
    """The training specification breaks a rule; ``reason`` is the rule's code."""

    status = 422
    code = "invalid-spec"
    title = "The training specification is not valid"
    default_remedy = "Correct the field as the detail says and ask again."


class InvalidOrder(MarketError):
    """An amount, a time or a count of the order is out of range."""

    status = 422
    code = "invalid-order"
    title = "The order is not valid"


class BudgetBelowOneUnit(MarketError):
    status = 422
    code = "budget-below-one-unit"
    title = "The budget does not buy one unit of work"


class InsufficientBalance(MarketError):
    status = 422
    code = "insufficient-balance"
    title = "The payer does not hold the budget"
    default_remedy = "Lower budget_max, or transfer ZEN to the payer's address first."


class DatasetNotFound(MarketError):
    status = 422
    code = "dataset-not-found"
    title = "The dataset cannot be found"
    default_remedy = "Upload the dataset and its manifest (POST /v1/blobs), or check the CID."


class InvalidDataset(MarketError):
    status = 422
    code = "invalid-dataset"
    title = "The dataset manifest is not valid"
    default_remedy = "Correct the manifest, upload it again and give its new CID."


class PermitTooShort(MarketError):
    status = 422
    code = "permit-too-short"
    title = "The permit ends too early"


class JobNotFound(MarketError):
    status = 404
    code = "job-not-found"
    title = "There is no such job"
    default_remedy = "Check the id; GET /v1/jobs lists your jobs."


class NotCancellable(MarketError):
    status = 409
    code = "not-cancellable"
    title = "The job cannot be cancelled in this state"


class NotAmendable(MarketError):
    status = 409
    code = "not-amendable"
    title = "The job's terms cannot be changed in this state"


class OrderFixed(MarketError):
    status = 409
    code = "order-fixed"
    title = "The signed order does not allow this"
    default_remedy = (
        "The escrow contract holds the signed terms. Cancel the job, which refunds it in full, and sign a new one: "
        "POST /v1/jobs/{id}/clone gives the documents."
    )


class NotPausable(MarketError):
    status = 409
    code = "not-pausable"
    title = "The job cannot be paused or resumed in this state"


class NothingToContinue(MarketError):
    status = 409
    code = "nothing-to-continue"
    title = "The job cannot be continued from a checkpoint"


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


class CommitmentChanged(MarketError):
    status = 409
    code = "commitment-changed"
    title = "A different result was committed before"
    default_remedy = "A commitment is final; complete the lease with the result first committed."


class CommitmentRepeated(MarketError):
    """The very same commitment was made for an earlier unit: in the windows' trees each leaf stands once."""

    status = 409
    code = "commitment-repeated"
    title = "This commitment was made before"
    default_remedy = "Take a fresh salt for every lease, and commit to the payload's hash with it."


class CommitmentNotFound(MarketError):
    status = 404
    code = "commitment-not-found"
    title = "There is no such commitment"
    default_remedy = "Check the id: the leaf of the commitment in its window's tree, 0x hex of 32 bytes."


class ResultRefused(MarketError):
    """What was delivered is not what was asked or committed; the member ``reason`` tells which rule it breaks."""

    status = 422
    code = "result-refused"
    title = "The result was refused"
    default_remedy = "Check the node: all but reveal leases end with this, and the work goes to another node."


class FileNotAsked(MarketError):
    """The lease asks for another file than this one, or for none."""

    status = 409
    code = "file-not-asked"
    title = "The lease does not ask for this file"
    default_remedy = "Upload what the lease's task names; a train lease takes a payload, a reveal lease states."


class PieceRefused(MarketError):
    """``reason``: ``piece_mismatch`` (other bytes than its CID), ``file_too_large`` or ``piece_empty``."""

    status = 422
    code = "piece-refused"
    title = "The piece is not taken"
    default_remedy = "Read the piece again from the file, and send it with its own CID and number."


class UploadIncomplete(MarketError):
    """``missing`` names the first pieces that are missing; where it is empty, all are to be sent."""

    status = 409
    code = "upload-incomplete"
    title = "Pieces of the file are missing"
    default_remedy = "Read the file's state (GET on the same path), send the pieces that it lacks and repeat this."


class WrongFile(MarketError):
    status = 422
    code = "wrong-file"
    title = "The pieces make another file"
    default_remedy = "Send all pieces of the file again, in their order; all but the last are full."
