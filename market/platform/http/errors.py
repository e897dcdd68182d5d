"""Refusals that belong to no feature."""

from market.platform.http.problem import MarketError


class InvalidRequest(MarketError):
    status = 422
    code = "invalid-request"
    title = "The request does not fit the schema"
    default_remedy = "Correct the named field and send the request again; /docs shows the schema."


class NotFound(MarketError):
    status = 404
    code = "not-found"
    title = "There is nothing under this address"
    default_remedy = "Check the path and the id; /docs lists all paths."


class MethodNotAllowed(MarketError):
    status = 405
    code = "method-not-allowed"
    title = "This address does not take this method"
    default_remedy = "Use one of the methods in the Allow header; /docs lists them."


class BodyTooLarge(MarketError):
    status = 413
    code = "body-too-large"
    title = "The body is too large"
    default_remedy = "Send less. Put data on storage with POST /v1/blobs and refer to it by its CID."


class StorageQuotaExceeded(MarketError):
    """``used_bytes`` of ``quota_bytes`` are taken; from ``not_before`` on there is more room."""

    status = 403
    code = "storage-quota-exceeded"
    title = "You have put too much on storage within a day"
    default_remedy = "Wait until not_before, or put large data on an IPFS node of your own and name it by its CID."


class StateConflict(MarketError):
    status = 409
    code = "state-conflict"
    title = "This is not possible in the present state"
    default_remedy = "Read the present state first; somebody else may have moved it."


class KeyReused(MarketError):
    status = 422
    code = "idempotency-key-reused"
    title = "The Idempotency-Key was used for another request"
    default_remedy = "Take a new key for a new request; repeat a key only with the same body."


class RequestInFlight(MarketError):
    status = 409
    code = "request-in-flight"
    title = "A request with this Idempotency-Key is still being answered"
    default_remedy = "Wait a moment and repeat the request with the same key."


class RateLimited(MarketError):
    """``retry_after`` says in how many seconds the next request is possible, as does the header Retry-After."""

    status = 429
    code = "rate-limited"
    title = "Too many requests"
    default_remedy = "Wait as long as Retry-After says. Poll with If-None-Match, or use webhooks or the event stream."


class UnknownTier(MarketError):
    status = 422
    code = "unknown-tier"
    title = "There is no such tier"
    default_remedy = "Choose one of the tiers that GET /v1/network lists."


class InvalidSignature(MarketError):
    status = 422
    code = "invalid-signature"
    title = "The signature is not the caller's over exactly this message"
    default_remedy = "Sign the EIP-712 document with the caller's key, in the domain that GET /v1/network gives."


class NonceReplayed(MarketError):
    status = 409
    code = "nonce-replayed"
    title = "The nonce was used before"
    default_remedy = "Sign again with a fresh random nonce."


class StorageDown(MarketError):
    status = 503
    code = "storage-unavailable"
    title = "Storage does not answer"
    default_remedy = "Repeat the request in some seconds."


class ChainDown(MarketError):
    status = 503
    code = "chain-unavailable"
    title = "The chain does not answer"
    default_remedy = "Nothing was changed; repeat the request in a few seconds."


class InternalError(MarketError):
    status = 500
    code = "internal-error"
    title = "The market failed"
    default_remedy = "Repeat the request later; if it persists, report the request id."
