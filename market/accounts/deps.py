"""Who makes the request."""

import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from market.accounts import service
from market.accounts.errors import NotAuthenticated, NotPermitted, ScopeMissing, SessionRequired
from market.accounts.service import Principal
from market.api.deps import ServicesDep
from market.api.scopes import required_scope
from market.api.services import Services

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
    principal = services.callers.find(bearer.credentials)
    if principal is None:
        asked_at = time.monotonic()
        principal = await run_in_threadpool(_look_up, services, bearer.credentials)
        services.callers.remember(bearer.credentials, principal, asked_at)
    scope = required_scope(request.scope.get("route"), request.method)
    if scope is not None and not principal.may(scope):
        raise ScopeMissing(f"this needs the scope {scope}", field="Authorization", extra={"scope": scope})
    return principal


def _look_up(services: Services, secret: str) -> Principal:
    with services.database.reading() as session:
        return service.authenticate(session, secret, services.settings.admin_addresses)


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


async def _forget_callers(services: ServicesDep) -> AsyncIterator[None]:
    yield
    services.callers.forget()


CREDENTIALS_CHANGE = Depends(_forget_callers, scope="function")
"""Dependency of a route that ends credentials or changes rights. Routes' own dependencies end after their parameters',
so this one acts after the commit of the unit of work."""
