"""Idempotency-Key: a retried request gets the first request's response.

The response is stored in the transaction of the work, so both are committed or neither is.
"""

import json
import zlib
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from market.accounts.deps import CurrentAccount, require_live_caller
from market.accounts.models import IdempotentRequest
from market.platform.db.session import Database, UnitOfWork
from market.platform.http.deps import Uow, services_of
from market.platform.http.errors import KeyReused, RequestInFlight
from zoo_protocol.hashing import sha256, to_hex

RETENTION = timedelta(days=7)
Answer = tuple[int, BaseModel]  # status and body
Work = Callable[[Session], Answer]
Statement = Callable[[UnitOfWork], Answer]


class IdempotentCall:
    """Request with an optional Idempotency-Key."""

    def __init__(self, database: Database, caller: str, key: str | None, body_hash: str) -> None:
        self._database, self._caller, self._key, self._body_hash = database, caller, key, body_hash

    def earlier_answer(self) -> JSONResponse | None:
        """Return the response to an earlier request with this key; call it before slow checks.

        Raises:
            KeyReused: that request had another body.
        """
        if self._key is None:
            return None
        with self._database.reading() as session:
            return self._find(session)

    def run(self, work: Work, statement: Statement | None = None) -> Response:
        """Do ``work`` in one transaction, at most once for this key.

        Args:
            statement: the same work as a single statement, if possible; without a key it runs without a transaction.

        Raises:
            KeyReused: the key was used with another body.
            RequestInFlight: another request with this key is in progress.
        """
        if statement is not None and self._key is None:
            with self._database.single_statement() as unit:
                status, body = statement(unit)
            return _rendered(status, body)
        with self._database.transaction() as session:
            earlier = self.begin(session)
            if earlier is not None:
                return earlier
            status, body = work(session)
            if self._key is not None:
                self.keep(session, status, body.model_dump(mode="json"))
        return _rendered(status, body)

    def begin(self, session: Session) -> JSONResponse | None:
        """Lock the key until the transaction ends; return the response to an earlier request.

        Raises:
            KeyReused, RequestInFlight: as in :meth:`run`.
        """
        if self._key is None:
            return None
        lock = zlib.crc32(f"{self._caller}/{self._key}".encode())
        if not session.scalar(select(func.pg_try_advisory_xact_lock(_LOCK_SPACE, lock - 2**31))):
            raise RequestInFlight("the first request with this key is in progress", field="Idempotency-Key")
        return self._find(session)

    def keep(self, session: Session, status: int, body: dict[str, Any]) -> None:
        """Store the response in the transaction of the work."""
        if self._key is not None:
            row = IdempotentRequest(
                caller=self._caller, key=self._key, body_hash=self._body_hash, status_code=status, response=body
            )
            session.add(row)

    def _find(self, session: Session) -> JSONResponse | None:
        row = session.get(IdempotentRequest, (self._caller, self._key))
        if row is None:
            return None
        if row.body_hash != self._body_hash:
            raise KeyReused("this key belongs to a request with another body", field="Idempotency-Key")
        return JSONResponse(row.response, row.status_code, headers={"Idempotent-Replayed": "true"})


def _rendered(status: int, body: BaseModel) -> Response:
    return Response(body.model_dump_json(), status, media_type="application/json")


_LOCK_SPACE = zlib.crc32(b"idempotency") - 2**31  # advisory locks take two signed 32-bit numbers


async def idempotent_call(
    request: Request,
    account: CurrentAccount,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=1, max_length=255, description="Repeat it to retry safely: the same answer comes back."),
    ] = None,
) -> IdempotentCall:
    """Return a request's :class:`IdempotentCall`; the hash covers method, path and body."""
    database = services_of(request).database
    if idempotency_key is None:
        return IdempotentCall(database, account.address, None, "")
    content = f"{request.method} {request.url.path}\n".encode() + await request.body()
    return IdempotentCall(database, account.address, idempotency_key, to_hex(sha256(content)))


Idempotent = Annotated[IdempotentCall, Depends(idempotent_call)]


class Replayed(Exception):
    """The request is a retry; ``answer`` is the first response."""

    def __init__(self, answer: JSONResponse) -> None:
        self.answer = answer


def _begin(request: Request, call: Idempotent, session: Uow) -> None:
    earlier = call.begin(session)
    if earlier is not None:
        raise Replayed(earlier)
    request.state.answer_kept_by = lambda status, body: call.keep(session, status, body)


IDEMPOTENT_ROUTE = Depends(_begin, scope="function")
"""Dependency of an :class:`IdempotentRoute` that works in its unit of work."""


class IdempotentRoute(APIRoute):
    """Route that stores its response for retries if it depends on :data:`IDEMPOTENT_ROUTE`.

    The unit of work commits after the response is rendered, so both are stored together. The stored response omits the
    fields in ``request.state.secret_fields``.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except Exception:
                await require_live_caller(request)
                raise
            keep = getattr(request.state, "answer_kept_by", None)
            if keep is not None and response.status_code < 400:
                hidden = dict.fromkeys(getattr(request.state, "secret_fields", ()))
                body = json.loads(bytes(response.body)) | hidden
                await run_in_threadpool(keep, response.status_code, body)
            return response

        return answer


def delete_expired_answers(session: Session, now: datetime) -> None:
    """Delete responses older than a week; called by the sweep."""
    session.execute(delete(IdempotentRequest).where(IdempotentRequest.created_at < now - RETENTION))
