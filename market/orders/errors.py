"""Refusals of orders and of changes to jobs."""

from market.platform.http.problem import Conflict, UnprocessableRequest


class InvalidSpec(UnprocessableRequest):
    """The training specification breaks the rule with the code ``reason``."""

    code = "invalid-spec"
    title = "The training specification is not valid"
    default_remedy = "Correct the field that the detail names."


class InvalidOrder(UnprocessableRequest):
    code = "invalid-order"
    title = "The order is not valid"


class BudgetBelowOneUnit(UnprocessableRequest):
    code = "budget-below-one-unit"
    title = "The budget does not buy one unit of work"


class InsufficientBalance(UnprocessableRequest):
    """``missing_wei`` is the smallest sufficient deposit for an order."""

    code = "insufficient-balance"
    title = "The payer does not hold the amount"
    default_remedy = "Deposit the missing amount (GET /v1/balance, POST /v1/deposits), or lower budget_max."


class BalanceTaken(Exception):
    """Other orders take too much of the balance as last read; a fresh view decides."""


class InvalidDeposit(UnprocessableRequest):
    code = "invalid-deposit"
    title = "The deposit is not valid"
    default_remedy = "GET /v1/balance?deposit=AMOUNT returns a permit to sign."


class PermitNonceUsed(Conflict):
    code = "permit-nonce-used"
    title = "The permit does not have the next nonce"
    default_remedy = "Sign the permit that GET /v1/balance?deposit=AMOUNT returns now."


class DatasetNotFound(UnprocessableRequest):
    code = "dataset-not-found"
    title = "The dataset cannot be found"
    default_remedy = (
        "Upload the dataset and its manifest (`zoo-compute dataset push`, POST /v1/blobs), or check the CID."
    )


class InvalidDataset(UnprocessableRequest):
    code = "invalid-dataset"
    title = "The dataset manifest is not valid"
    default_remedy = "Correct the manifest, upload it again and give its new CID."


class BaseModelNotFound(UnprocessableRequest):
    code = "base-model-not-found"
    title = "The base model cannot be found"
    default_remedy = (
        "Upload the model's files and its manifest (`zoo-compute model push`, POST /v1/blobs), or check the CID."
    )


class InvalidBaseModel(UnprocessableRequest):
    """The base model breaks the rule with the code ``reason``."""

    code = "invalid-base-model"
    title = "The base model is not valid"
    default_remedy = "Correct what the detail names, upload the model again and give the CID of its manifest."


class NotCancellable(Conflict):
    code = "not-cancellable"
    title = "The job cannot be cancelled in this state"


class NotAmendable(Conflict):
    code = "not-amendable"
    title = "The job's terms cannot be changed in this state"


class OrderFixed(Conflict):
    code = "order-fixed"
    title = "The signed order does not allow this"
    default_remedy = (
        "The escrow contract stores the signed terms. Cancel the job for a full refund, and sign a new one: "
        "`zoo-compute job clone` (POST /v1/jobs/{id}/clone)."
    )


class NotPausable(Conflict):
    code = "not-pausable"
    title = "The job cannot be paused or resumed in this state"


class NothingToContinue(Conflict):
    code = "nothing-to-continue"
    title = "The job cannot be continued from a checkpoint"
