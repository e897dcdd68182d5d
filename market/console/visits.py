"""Dependencies of all pages: the visitor, the check of forms, and the rendering with both."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import BackgroundTasks, Depends, Request, params
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from market.chain.contracts.codec import Deployment
from market.console.errors import ForgedRequest, RoleMissing, SignInNeeded
from market.console.page import Audience, Page
from market.console.parts import Parts
from market.console.rendering import templates
from market.console.sessions import service as sessions
from market.console.sessions.service import Visitor
from market.platform.http.deps import services_of
from market.platform.http.services import Services

COOKIE = "zoo_console"
_SAFE = ("GET", "HEAD")


@dataclass
class Visit:
    """Request of a page.

    Attributes:
        has_ended: the cookie's session has ended.
        names: names of addresses on this page, of the contracts at first; pages add to it.
        cookies: cookies that the rendered page sets; None deletes one.
        later: work after the response, such as reads of the chain.
        parts: parts that templates repeat.
    """

    request: Request
    services: Services
    visitor: Visitor | None
    has_ended: bool = False
    names: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str | None] = field(default_factory=dict)
    later: BackgroundTasks = field(default_factory=BackgroundTasks)
    parts: Parts = field(init=False)

    def __post_init__(self) -> None:
        self.parts = Parts(self.name_of, self.services.settings.block_explorer_url)
        contracts = {address: name for name, address in self.deployment.contracts.items()}
        self.names = contracts | self.names

    @property
    def wallet(self) -> Visitor:
        """Return the signed-in wallet. Raises SignInNeeded."""
        if self.visitor is None:
            raise SignInNeeded("this page is for signed-in wallets")
        return self.visitor

    @property
    def deployment(self) -> Deployment:
        return self.services.part(Deployment)

    def require(self, audience: Audience) -> None:
        """Raise SignInNeeded or RoleMissing unless the visitor belongs to ``audience``."""
        if audience.admits(self.visitor):
            return
        roles = self.wallet.roles
        needed = ", ".join(sorted(audience.value))
        raise RoleMissing(f"it needs one of {needed}; this wallet has {', '.join(sorted(roles)) or 'no role'}")

    def name_of(self, address: str) -> str | None:
        """Return the name of an address, if this page knows one."""
        if self.visitor is not None and address == self.visitor.address:
            return "you"
        return self.names.get(address)

    def render(self, template: str, status: int = 200, **values: object) -> HTMLResponse:
        """Return the page. Templates see ``visit``, ``pages`` (the navigation) and ``values``."""
        pages: tuple[Page, ...] = self.request.app.state.pages
        context: Mapping[str, object] = {
            "visit": self,
            "network": self.services.network,
            "pages": [page for page in pages if page.group and page.audience.admits(self.visitor)],
            **values,
        }
        response = HTMLResponse(templates.get_template(template).render(context), status)
        for name, value in self.cookies.items():
            if value is None:
                self.forget(response, name)
            else:
                self.keep(response, name, value)
        return response

    def keep(self, response: Response, name: str, value: str, expires: datetime | None = None) -> None:
        """Set a cookie of the console, which scripts and other sites never see."""
        response.set_cookie(
            name, value, expires=expires, path="/console", secure=self._is_encrypted, httponly=True, samesite="strict"
        )

    def forget(self, response: Response, name: str) -> None:
        """Delete a cookie of the console."""
        response.delete_cookie(name, path="/console", secure=self._is_encrypted, httponly=True, samesite="strict")

    @property
    def _is_encrypted(self) -> bool:
        return urlsplit(self.services.settings.public_url).scheme == "https"

    def link(self, path: str, **query: str) -> str | None:
        """Return the address of a page with a query; None if there is no such page."""
        pages: tuple[Page, ...] = self.request.app.state.pages
        if not any(page.path == path and page.audience.admits(self.visitor) for page in pages):
            return None
        return f"/console{path}?{urlencode(query)}" if query else f"/console{path}"

    def back_to(self, path: str) -> RedirectResponse:
        """Return the redirect after a form, to a path below ``/console``."""
        return RedirectResponse(f"/console{path}", 303)


def load_visit(request: Request, background: BackgroundTasks) -> Visit:
    """Return the visit; old roles are read again from the contracts after the response."""
    services = services_of(request)
    secret = request.cookies.get(COOKIE)
    visitor = sessions.visitor_of(services, secret) if secret else None
    if visitor is not None and visitor.roles_are_old:
        background.add_task(sessions.refresh_roles, services, visitor.session_id, visitor.address)
    return Visit(request, services, visitor, has_ended=bool(secret) and visitor is None, later=background)


CurrentVisit = Annotated[Visit, Depends(load_visit)]


async def refuse_forgery(request: Request, visit: CurrentVisit) -> None:
    """Require the console's origin and the session's token of each unsafe request.

    Raises:
        ForgedRequest: either is missing or wrong.
    """
    if request.method in _SAFE:
        return
    origin, host = request.headers.get("origin"), request.headers.get("host")
    if origin is None or urlsplit(origin).netloc != host:
        raise ForgedRequest("the origin of the request is not this console")
    if visit.visitor is None:
        return
    token = request.headers.get("x-csrf-token")
    if token is None:
        token = str((await request.form()).get("csrf", ""))
    if not hmac.compare_digest(token.encode(), visit.visitor.csrf_token.encode()):
        raise ForgedRequest("the form's token is not that of this session")


def admission(audience: Audience) -> params.Depends:
    """Return the dependency that admits ``audience`` only."""

    async def admit(visit: CurrentVisit) -> None:  # a coroutine, because it needs no thread
        visit.require(audience)

    found: params.Depends = Depends(admit)
    return found
