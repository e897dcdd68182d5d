"""Who makes the request."""

from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from market.accounts import service
from market.accounts.errors import NotAuthenticated, SessionRequired
from market.accounts.service import Principal
from market.api.deps import ServicesDep

_bearer = HTTPBearer(auto_error=False, description="A session token (POST /v1/auth/siwe) or an API key.")


def current_account(
    services: ServicesDep, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """The caller, looked up in a transaction of its own, so that waiting endpoints hold no session.

    Raises:
        NotAuthenticated: no usable bearer token came with the request.
    """
    if bearer is None:
        raise NotAuthenticated("the request has no bearer token", field="Authorization")
    with services.database.transaction() as session:
        return service.authenticate(session, bearer.credentials)


CurrentAccount = Annotated[Principal, Depends(current_account)]


def signed_in_account(account: CurrentAccount) -> Principal:
    """The caller, if signed in with a wallet: a leaked API key must not make further keys.

    Raises:
        SessionRequired: the caller uses an API key.
    """
    if account.credential_kind != "session":
        raise SessionRequired("this needs a session, not an API key", field="Authorization")
    return account


SignedInAccount = Annotated[Principal, Depends(signed_in_account)]
