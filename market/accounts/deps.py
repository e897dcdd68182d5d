"""Dependencies that identify the caller."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy.orm import Session

from market.accounts.caller_lookup import Callers
from market.accounts.errors import NotAuthenticated, NotPermitted, ScopeMissing, SessionRequired
from market.accounts.service import Principal
from market.platform.http.deps import services_of
from market.platform.http.ratelimit import count_by_account
from market.platform.http.scopes import required_scope

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_CONFIRMS = "confirms_its_caller"


@dataclass(frozen=True, slots=True)
class Registry:
    """Look-up of registered nodes, injected: accounts cannot import providers.

    Attributes:
        kind_of: returns the wallet's kind of node, ``provider`` or ``verifier``, or None.
    """

    kind_of: Callable[[Session, str], str | None]


def confirms_caller(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint whose success always includes a write that requires a live credential.

    Such an endpoint may use a cached caller. Its refusals still need a look-up (:func:`require_live_caller`), and so do
    requests with an ``Idempotency-Key``, which may be answered without a write.
    """
    setattr(endpoint, _CONFIRMS, True)
    return endpoint


class _CallerByBearer(HTTPBearer):
    """OpenAPI scheme and dependency that returns the caller.

    It uses a session of its own, so that waiting endpoints hold none. It is one dependency, because each further one
    slows every request.
    """

    async def __call__(self, request: Request) -> Principal:  # type: ignore[override]  # the base returns credentials
        """Return the caller.

        Raises:
            NotAuthenticated: the request has no usable bearer token.
            RateLimited: the account made too many requests.
            ScopeMissing: the scopes of the API key do not cover this route.
        """
        scheme, secret = get_authorization_scheme_param(request.headers.get("Authorization"))
        if scheme.lower() != "bearer" or not secret:
            raise NotAuthenticated("the request has no bearer token", field="Authorization")
        callers = services_of(request).part(Callers)
        endpoint = getattr(request.scope.get("route"), "endpoint", None)
        principal = None
        if getattr(endpoint, _CONFIRMS, False) and "idempotency-key" not in request.headers:
            principal = callers.cached_principal(secret)
            request.state.unconfirmed_secret = None if principal is None else secret
        if principal is None:
            principal = await callers.find(secret)
        await count_by_account(request.scope, None if principal is None else principal.address)
        if principal is None:
            raise _unknown()
        scope = required_scope(request.scope.get("route"), request.method)
        if scope is not None and not principal.may(scope):
            raise ScopeMissing(f"this requires the scope {scope}", field="Authorization", extra={"scope": scope})
        return principal


async def require_live_caller(request: Request) -> None:
    """Look up a cached caller before its request is refused for another reason.

    Raises:
        NotAuthenticated: the credential is revoked or expired.
    """
    secret = getattr(request.state, "unconfirmed_secret", None)
    if secret is not None and await services_of(request).part(Callers).find(secret) is None:
        raise _unknown()


def _unknown() -> NotAuthenticated:
    return NotAuthenticated("the token is unknown, expired or revoked", field="Authorization")


current_account = _CallerByBearer(
    scheme_name="HTTPBearer", description="A session token (POST /v1/auth/siwe) or an API key."
)
CurrentAccount = Annotated[Principal, Depends(current_account)]


async def signed_in_account(account: CurrentAccount) -> Principal:
    """Return the caller with a wallet session. A leaked API key must not create further keys.

    Raises:
        SessionRequired: the caller uses an API key.
    """
    if account.credential_kind != "session":
        raise SessionRequired("this requires a session, not an API key", field="Authorization")
    return account


SignedInAccount = Annotated[Principal, Depends(signed_in_account)]


async def admin_account(account: SignedInAccount) -> Principal:
    """Return the caller if it is an admin of the market with a wallet session.

    Raises:
        NotPermitted: the caller is not an admin.
    """
    if not account.is_admin:
        raise NotPermitted("this is for admins of the market", field="Authorization")
    return account


AdminAccount = Annotated[Principal, Depends(admin_account)]
