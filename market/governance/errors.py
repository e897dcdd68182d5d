"""Problems of governance."""

from market.platform.http.problem import MissingResource, UnprocessableRequest


class OperationNotFound(MissingResource):
    code = "operation-not-found"
    title = "The timelock has no such operation"
    default_remedy = "List the operations with GET /v1/governance/operations. A new one appears when it is final."


class EventNotFound(MissingResource):
    code = "governance-event-not-found"
    title = "There is no such governance event"
    default_remedy = "List the events with GET /v1/governance/events."


class PayoutNotFound(MissingResource):
    code = "payout-not-found"
    title = "There is no such batch or epoch"
    default_remedy = "List those under challenge with GET /v1/governance/payouts."


class ActRefused(UnprocessableRequest):
    """``field`` is the act's argument at fault, if any."""

    code = "act-refused"
    title = "The act cannot be prepared"
    default_remedy = "Correct the named argument. GET /v1/governance/acts lists all acts with their arguments."


class SentActNotFound(MissingResource):
    code = "sent-act-not-found"
    title = "The chain's node does not know this transaction"
    default_remedy = "Report the act again when its transaction is mined."


class SentActDiffers(UnprocessableRequest):
    """Sender, target or call data are not those of the reported act."""

    code = "sent-act-differs"
    title = "The transaction is not this act of this account"
    default_remedy = "Report the transaction that the reporting account itself sent for the act."
