"""Who makes the request."""

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
    """Lookup of registered nodes, given by the composition root: accounts cannot import providers.

    Attributes:
        kind_of: returns what a wallet is registered as, ``provider`` or ``verifier``, or None.
    """

    kind_of: Callable[[Session, str], str | None]


def confirms_caller(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint that succeeds only by a write which holds that the caller's credential is live.

    Then a caller that is remembered need not be looked up first. Refusals need a look all the same
    (:func:`require_live_caller`), as must requests that may be answered without a write: those with an
    ``Idempotency-Key``.
    """
    setattr(endpoint, _CONFIRMS, True)
    return endpoint


class _CallerByBearer(HTTPBearer):
    """The caller, looked up with a session of its own, so that waiting endpoints hold none.

    It is the OpenAPI scheme as well as the dependency: each further one that a dependency has costs every request.
    """

    async def __call__(self, request: Request) -> Principal:  # type: ignore[override]  # not only what was sent
        """
        Raises:
            NotAuthenticated: no usable bearer token came with the request.
            RateLimited: the account made too many requests.
            ScopeMissing: it is an API key whose scopes do not cover this route.
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
            raise ScopeMissing(f"this needs the scope {scope}", field="Authorization", extra={"scope": scope})
        return principal


async def require_live_caller(request: Request) -> None:
    """Look up a caller that was only remembered, before its request is refused for another reason.

    Raises:
        NotAuthenticated: the credential was revoked, or expired.
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
    """The caller, if signed in with a wallet: a leaked API key must not make further keys.

    Raises:
        SessionRequired: the caller uses an API key.
    """
    if account.credential_kind != "session":
        raise SessionRequired("this needs a session, not an API key", field="Authorization")
    return account


SignedInAccount = Annotated[Principal, Depends(signed_in_account)]


async def admin_account(account: SignedInAccount) -> Principal:
    """The caller, if an admin of the market who signed in with a wallet.

    Raises:
        NotPermitted: the caller is none.
    """
    if not account.is_admin:
        raise NotPermitted("this is for admins of the market", field="Authorization")
    return account


AdminAccount = Annotated[Principal, Depends(admin_account)]
