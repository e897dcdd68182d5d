"""Dependencies that identify the caller, by one query for all waiting requests."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy.orm import Session

from market.accounts import service
from market.accounts.errors import NotAuthenticated, NotPermitted, ScopeMissing, SessionRequired
from market.accounts.service import Principal
from market.platform.db.session import Database
from market.platform.http.deps import services_of
from market.platform.http.ratelimit import count_by_account
from market.platform.http.scopes import required_scope
from zoo_protocol.hashing import sha256

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_CONFIRMS = "confirms_its_caller"
_CACHE_SECONDS = 60.0
_MAX_CACHED = 10_000


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


class Callers:
    """Look-up of callers for the coroutines of one event loop.

    Requests that arrive during a query share the next one. Each request is therefore answered by a query that began
    after its arrival, so credentials revoked before are refused.
    """

    def __init__(self, database: Database, admins: Collection[str]) -> None:
        self._database, self._admins = database, admins
        self._waiting: list[tuple[str, asyncio.Future[Principal | None]]] = []
        self._querying: asyncio.Task[None] | None = None
        self._cache: dict[bytes, tuple[Principal, float]] = {}

    def cached_principal(self, secret: str) -> Principal | None:
        """Return the caller of this secret if a query within the last minute found it.

        The secret may be revoked. Callers must write only if it is live (``service.still_live``), and must use
        :meth:`find` before any other response.
        """
        principal, at = self._cache.get(sha256(secret.encode()), (None, 0.0))
        return principal if time.monotonic() - at < _CACHE_SECONDS else None

    async def find(self, secret: str) -> Principal | None:
        """Return the caller of this bearer secret; None if it is unknown, expired or revoked."""
        answer: asyncio.Future[Principal | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((secret, answer))
        if self._querying is None or self._querying.done():
            self._querying = asyncio.create_task(self._query())
        return await answer

    async def _query(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, []
            try:
                found = await run_in_threadpool(self._look_up, {secret for secret, _ in asked})
            except Exception as error:  # all requests of the batch fail
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for secret, answer in asked:
                self._store(secret, found.get(secret))
                if not answer.done():
                    answer.set_result(found.get(secret))

    def _store(self, secret: str, principal: Principal | None) -> None:
        key = sha256(secret.encode())
        if principal is None:
            self._cache.pop(key, None)
            return
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = (principal, time.monotonic())

    def _look_up(self, secrets: Collection[str]) -> dict[str, Principal]:
        with self._database.reading() as session:
            return service.authenticate(session, secrets, self._admins)


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
