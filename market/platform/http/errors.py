"""Problems that belong to no feature."""

from market.platform.http.problem import Conflict, MarketError, MissingResource, UnprocessableRequest


class InvalidRequest(UnprocessableRequest):
    code = "invalid-request"
    title = "The request does not match the schema"
    default_remedy = "Correct the named field and send the request again. /docs has the schema."


class NotFound(MissingResource):
    code = "not-found"
    title = "There is nothing under this address"
    default_remedy = "Check the path and the id. /docs lists all paths."


class MethodNotAllowed(MarketError):
    status = 405
    code = "method-not-allowed"
    title = "This address does not take this method"
    default_remedy = "Use a method of the Allow header. /docs lists them."


class BodyTooLarge(MarketError):
    status = 413
    code = "body-too-large"
    title = "The body is too large"
    default_remedy = "Send less. Store data with POST /v1/blobs and refer to it by its CID."


class StorageQuotaExceeded(MarketError):
    """``used_bytes`` of ``quota_bytes`` are used; some become free at ``not_before``."""

    status = 403
    code = "storage-quota-exceeded"
    title = "The account's storage quota for a day is used up"
    default_remedy = "Wait until not_before, or store large data on your own IPFS node and refer to it by its CID."


class StateConflict(Conflict):
    code = "state-conflict"
    title = "This is not possible in the present state"
    default_remedy = "Read the present state and decide again. Another request may have changed it."


class KeyReused(UnprocessableRequest):
    code = "idempotency-key-reused"
    title = "The Idempotency-Key was used for another request"
    default_remedy = "Use a new key for a new request. Repeat a key only with the same body."


class RequestInFlight(Conflict):
    code = "request-in-flight"
    title = "A request with this Idempotency-Key is still in progress"
    default_remedy = "Repeat the request with the same key in a second."


class RateLimited(MarketError):
    """``retry_after`` is the number of seconds to wait, as the header Retry-After."""

    status = 429
    code = "rate-limited"
    title = "Too many requests"
    default_remedy = (
        "Wait for the seconds in Retry-After. Poll with If-None-Match, or use webhooks or the event stream."
    )


class UnknownTier(UnprocessableRequest):
    code = "unknown-tier"
    title = "There is no such tier"
    default_remedy = "Choose one of the tiers that `zoo-compute network` (GET /v1/network) lists."


class InvalidSignature(UnprocessableRequest):
    code = "invalid-signature"
    title = "The signature is not the caller's over exactly this message"
    default_remedy = "Sign the EIP-712 document with the caller's key, in the domain of GET /v1/network."


class NonceReplayed(Conflict):
    code = "nonce-replayed"
    title = "The nonce was used before"
    default_remedy = "Sign again with a fresh random nonce."


class DatabaseDown(MarketError):
    """The header Retry-After has the number of seconds to wait."""

    status = 503
    code = "database-unavailable"
    title = "The database does not answer"
    default_remedy = "Repeat the request after the seconds in Retry-After, with the same Idempotency-Key."


class StorageDown(MarketError):
    status = 503
    code = "storage-unavailable"
    title = "Storage does not answer"
    default_remedy = "Repeat the request in some seconds."


class ChainDown(MarketError):
    status = 503
    code = "chain-unavailable"
    title = "The chain does not answer"
    default_remedy = "Nothing was changed. Repeat the request in a few seconds."


class InternalError(MarketError):
    status = 500
    code = "internal-error"
    title = "The market failed"
    default_remedy = "Repeat the request later. If the problem persists, report the request id."
