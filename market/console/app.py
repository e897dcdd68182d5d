"""The console's application, mounted at ``/console`` of the API."""

from typing import Any
from urllib.parse import quote

import structlog
from fastapi import BackgroundTasks, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market.chain.errors import ChainError
from market.console import acts, live, sign_in
from market.console.errors import SignInNeeded
from market.console.pages import PAGES
from market.console.rendering import STATIC
from market.console.visits import Visit, admission, load_visit, refuse_forgery
from market.platform.http.deps import services_of
from market.platform.http.errors import ChainDown, DatabaseDown, InternalError, InvalidRequest, NotFound
from market.platform.http.problem import MarketError, problem_response

_log = structlog.get_logger(__name__)
PREFIX = "/console"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_HANDLED: tuple[type[Exception], ...] = (
    MarketError,
    ChainError,
    OperationalError,
    InterfaceError,
    PoolTimeout,
    RequestValidationError,
    HTTPException,
    Exception,
)


def mount_console(app: FastAPI) -> None:
    """Add the console to the API; both share the state."""
    app.state.pages = PAGES
    console = create_console()
    console.state = app.state
    app.router.routes.insert(0, _Mount(PREFIX, console, name="console"))  # last, a page would try all routes of the API


def create_console() -> FastAPI:
    """Return the application of all pages."""
    console = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(refuse_forgery)])
    for error in _HANDLED:
        console.add_exception_handler(error, _refused)
    console.include_router(sign_in.router)
    console.include_router(live.router)
    console.include_router(acts.router)
    for page in PAGES:
        console.include_router(page.router, dependencies=[admission(page.audience)])
    console.mount("/static", GZipMiddleware(StaticFiles(directory=STATIC)))
    console.add_middleware(_Headers)
    return console


class _Mount(Mount):
    """Mount that also answers at ``/console`` itself; others redirect to ``/console/``."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope["path"].startswith(PREFIX):  # cheap, as each request of the API comes by
            return Match.NONE, {}
        if scope["path"] == PREFIX:
            scope["path"] = f"{PREFIX}/"
        return super().matches(scope)


class _Headers:
    """Middleware that adds the policy, and forbids caches for all but static files."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_static = "/static/" in scope.get("path", "")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_static else "no-store"
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _refused(request: Request, error: Exception) -> Response:
    """Return a page with code and remedy, a problem document, or the way to the sign-in."""
    problem = _problem(error)
    if "application/json" in request.headers.get("accept", ""):
        return problem_response(request, problem)
    if isinstance(problem, SignInNeeded) and request.method == "GET":
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{PREFIX}/sign-in?next={quote(request.url.path + query, safe='/')}", 303)
    visit = Visit(request, services_of(request), None)
    if problem.status < 500:
        visit = load_visit(request, BackgroundTasks())
    return visit.render("error.html", status=problem.status, problem=problem)


def _problem(error: Exception) -> MarketError:
    if isinstance(error, MarketError):
        return error
    if isinstance(error, ChainError):
        return ChainDown(str(error))
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        _log.warning("database_unavailable", error=str(error))
        return DatabaseDown("the database refused, lost or did not complete the request")
    if isinstance(error, RequestValidationError):
        first: dict[str, Any] = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        return InvalidRequest(f"{field}: {first['msg']}", field=field, remedy="Correct the field and try again.")
    if isinstance(error, HTTPException) and error.status_code < 500:
        return NotFound("there is no such page", remedy="Choose a page of the navigation.")
    return InternalError("an unexpected error")
