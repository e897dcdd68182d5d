"""Refusals of accounts."""

from market.api.problem import MarketError


class NotAuthenticated(MarketError):
    status = 401
    code = "not-authenticated"
    title = "You are not signed in"
    default_remedy = "Send 'Authorization: Bearer TOKEN' with a session token (POST /v1/auth/siwe) or an API key."


class SignInRefused(MarketError):
    status = 401
    code = "sign-in-refused"
    title = "The sign-in message was not accepted"
    default_remedy = "Ask for a new nonce with POST /v1/auth/nonce and sign a message made of the fields it returns."


class SessionRequired(MarketError):
    status = 403
    code = "session-required"
    title = "An API key cannot do this"
    default_remedy = "Sign in with your wallet and repeat the request with the session token."


class ApiKeyNotFound(MarketError):
    status = 404
    code = "api-key-not-found"
    title = "There is no such API key"
    default_remedy = "List your keys with GET /v1/me/keys."
