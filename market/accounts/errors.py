"""Problems of accounts and organisations."""

from market.platform.http.problem import Conflict, MarketError, MissingResource


class NotAuthenticated(MarketError):
    status = 401
    code = "not-authenticated"
    title = "You are not signed in"
    default_remedy = "Send 'Authorization: Bearer TOKEN' with a session token (POST /v1/auth/siwe) or an API key."


class SignInRefused(MarketError):
    status = 401
    code = "sign-in-refused"
    title = "The sign-in message was not accepted"
    default_remedy = "Request a new nonce with POST /v1/auth/nonce and sign a message with the fields of the response."


class SessionRequired(MarketError):
    status = 403
    code = "session-required"
    title = "An API key cannot do this"
    default_remedy = "Sign in with your wallet and repeat the request with the session token."


class ApiKeyNotFound(MissingResource):
    code = "api-key-not-found"
    title = "There is no such API key"
    default_remedy = "List your keys with `zoo-compute auth keys` (GET /v1/me/keys)."


class ScopeMissing(MarketError):
    """The key's scopes do not cover this request; the member ``scope`` is the required one."""

    status = 403
    code = "scope-missing"
    title = "The API key may not do this"
    default_remedy = (
        "Create a key with this scope (`zoo-compute auth create-key`, POST /v1/me/keys), or sign in with your wallet."
    )


class NotPermitted(MarketError):
    status = 403
    code = "not-permitted"
    title = "Your role does not allow this"
    default_remedy = "GET /v1/me returns your roles. Ask an admin of the market or of the organisation."


class AccountNotFound(MissingResource):
    code = "account-not-found"
    title = "This wallet has no account"
    default_remedy = "Sign in once with that wallet to create its account."


class TooManyKeys(Conflict):
    code = "too-many-keys"
    title = "The account has the maximum number of API keys"
    default_remedy = "Revoke one (`zoo-compute auth revoke`, DELETE /v1/me/keys/{id}) and try again."


class SpendingCapReached(Conflict):
    """``cap`` is the cap, ``of`` its holder, ``left_wei`` the rest."""

    code = "spending-cap-reached"
    title = "The job exceeds a spending cap"
    default_remedy = "Lower budget_max, wait (daily caps reset at 00:00 UTC), or have the cap raised."


class OrganisationNotFound(MissingResource):
    code = "organisation-not-found"
    title = "You are not a member of this organisation"
    default_remedy = (
        "`zoo-compute org list` (GET /v1/organisations) lists yours. An owner or admin of the organisation can add you."
    )


class MemberNotFound(MissingResource):
    code = "member-not-found"
    title = "The organisation has no such member"
    default_remedy = "`zoo-compute org show` (GET /v1/organisations/{id}) lists the members."


class LastOwner(Conflict):
    code = "last-owner"
    title = "An organisation must have at least one owner"
    default_remedy = "Make another member owner first."
