"""Conversion of all errors of endpoints into problem documents."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from market.accounts.idempotency import Replayed
from market.chain.errors import ChainError
from market.domain.lifecycle import IllegalTransition
from market.platform.http.errors import (
    ChainDown,
    DatabaseDown,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    StateConflict,
    StorageDown,
)
from market.platform.http.problem import MarketError, problem_response
from market.platform.storage.errors import StorageUnavailable

_log = structlog.get_logger(__name__)
_RETRY_SECONDS = 2
_SEND_JSON = "Send valid JSON with Content-Type: application/json."


def install_handlers(app: FastAPI) -> None:
    """Render all errors, including the framework's, as problem+json."""
    app.add_exception_handler(MarketError, _market_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(IllegalTransition, _illegal_transition)
    app.add_exception_handler(HTTPException, _http_exception)
    for failure, refusal in ((StorageUnavailable, StorageDown), (ChainError, ChainDown)):
        app.add_exception_handler(failure, partial(_refuse_as, refusal))
    for lost in (OperationalError, InterfaceError, PoolTimeout):
        app.add_exception_handler(lost, _database_down)
    app.add_exception_handler(DataError, _data_error)
    app.add_exception_handler(Replayed, _replayed)


def _market_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, MarketError)
    return problem_response(request, error)


def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [_explain(item) for item in error.errors()]
    first = problems[0]
    return problem_response(
        request,
        InvalidRequest(
            f"{first['field']}: {first['detail']}",
            field=first["field"],
            remedy=first["remedy"],
            extra={"errors": problems},
        ),
    )


def _explain(item: dict[str, Any]) -> dict[str, str]:
    """Return dotted field path, detail and remedy of one validation error."""
    path: Sequence[str | int] = item["loc"]
    context = item.get("ctx", {})
    remedy = InvalidRequest.default_remedy
    if item["type"] == "unknown_key":
        path = [*path, context["key"]]
        known = ", ".join(context["known"])
        nearest = context["nearest"]
        remedy = f"Did you mean {nearest!r}?" if nearest else "Remove it."
        remedy += f" Known keys: {known}." if known else " There are no known keys."
    if item["type"] == "unstorable":
        path = [*path, context["key"]]
        remedy = "Remove the character."
    if item["type"] == "json_invalid":
        path = ["body"]
        remedy = _SEND_JSON
    if len(path) > 1 and path[0] == "body":
        path = path[1:]
    elif list(path) == ["body"] and isinstance(item.get("input"), bytes):  # not parsed because of its Content-Type
        remedy = _SEND_JSON
    detail = item["msg"].removeprefix("Value error, ")  # pydantic's prefix
    return {"field": ".".join(map(str, path)), "detail": detail, "remedy": str(remedy)}


def _illegal_transition(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, IllegalTransition)
    refusal = StateConflict(f"{error.event} is not possible while the state is {error.state}")
    return problem_response(request, refusal)


def _refuse_as(refusal: type[MarketError], request: Request, error: Exception) -> JSONResponse:
    return problem_response(request, refusal(str(error)))


def _database_down(request: Request, error: Exception) -> JSONResponse:
    _log.warning("database_unavailable", error=str(error))
    refusal = DatabaseDown("the database refused, lost or did not complete the request")
    return problem_response(request, refusal, {"Retry-After": str(_RETRY_SECONDS)})


def _data_error(request: Request, error: Exception) -> JSONResponse:
    return problem_response(request, InvalidRequest("a text cannot be stored: it has the character U+0000"))


def _replayed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Replayed)
    return error.answer


def _http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem_response(request, NotFound(f"no resource at {request.url.path}"), headers)
    if error.status_code == 405:
        return problem_response(request, MethodNotAllowed(f"{request.method} on {request.url.path}"), headers)
    unreadable = InvalidRequest(str(error.detail), field="body", remedy=_SEND_JSON)  # for example nested too deeply
    return problem_response(request, unreadable, headers)
