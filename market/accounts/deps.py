"""Who makes the request."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from market.accounts.errors import NotAuthenticated, NotPermitted, ScopeMissing, SessionRequired
from market.accounts.service import Principal
from market.api.deps import ServicesDep
from market.api.scopes import required_scope

_bearer = HTTPBearer(auto_error=False, description="A session token (POST /v1/auth/siwe) or an API key.")


async def current_account(
    request: Request, services: ServicesDep, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """The caller, looked up with a session of its own, so that waiting endpoints hold none.

    Raises:
        NotAuthenticated: no usable bearer token came with the request.
        ScopeMissing: it is an API key whose scopes do not cover this route.
    """
    if bearer is None:
        raise NotAuthenticated("the request has no bearer token", field="Authorization")
    principal = await services.callers.find(bearer.credentials)
    if principal is None:
        raise NotAuthenticated("the token is unknown, expired or revoked", field="Authorization")
    scope = required_scope(request.scope.get("route"), request.method)
    if scope is not None and not principal.may(scope):
        raise ScopeMissing(f"this needs the scope {scope}", field="Authorization", extra={"scope": scope})
    return principal


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
