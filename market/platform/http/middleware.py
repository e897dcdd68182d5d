"""Middleware of every request: id, log line, metrics, unhandled errors, body limit."""

import re
import time
import uuid

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market.platform.http.errors import BodyTooLarge, InternalError
from market.platform.http.problem import problem_response
from market.platform.observability.metrics import Metrics

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = structlog.get_logger("market.api")


class RequestContext:
    """Middleware that assigns the request's id (or takes ``X-Request-ID``), logs and counts.

    An unhandled exception becomes a 500 problem document; only the log has its traceback.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        given = request.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            _log.exception("request_failed", method=request.method, path=request.url.path)
            if status:  # part of the response was sent, so only breaking the connection is left
                raise
            failure = InternalError("an unexpected error", extra={"request_id": request_id})
            await problem_response(request, failure)(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "unmatched")
            self._metrics.answered(request.method, route, status, seconds)
            _log.info(
                "request", method=request.method, path=request.url.path, status=status, ms=round(seconds * 1000, 1)
            )


class BodyLimit:
    """Middleware that reads each body into memory and refuses more than ``max_bytes`` with 413.

    ``streamed`` matches the paths of endpoints that read and limit the body themselves.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, streamed: re.Pattern[str]) -> None:
        self._app, self._max_bytes, self._streamed = app, max_bytes, streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._streamed.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                refusal = BodyTooLarge(f"body exceeds {self._max_bytes} bytes", field="body")
                await problem_response(Request(scope), refusal, {"Connection": "close"})(scope, receive, send)
                return
            more = message.get("more_body", False)

        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)
