"""ETag and If-None-Match: a polling client gets 304 while nothing changes."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zoo_protocol.hashing import sha256

_JSON = "application/json"


class ConditionalGet:
    """Middleware: an ETag for JSON responses of a GET under ``/v1/``. Streams pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        wanted = Headers(scope=scope).get("if-none-match")
        held: Message | None = None
        body = b""

        async def send_tagged(message: Message) -> None:
            nonlocal held, body
            if message["type"] == "http.response.start" and _is_plain_json(message):
                held = message
                return
            if held is None:
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                await _finish(held, body, wanted, send)

        await self._app(scope, receive, send_tagged)


def _is_plain_json(start: Message) -> bool:
    return start["status"] == 200 and Headers(raw=start["headers"]).get("content-type", "").startswith(_JSON)


async def _finish(start: Message, body: bytes, wanted: str | None, send: Send) -> None:
    tag = f'"{sha256(body).hex()[:32]}"'
    headers = MutableHeaders(raw=start["headers"])
    headers["ETag"] = tag
    headers.setdefault("Cache-Control", "private, no-cache")  # store it, but revalidate
    if wanted is not None and _matches(wanted, tag):
        del headers["content-length"]
        del headers["content-type"]
        start["status"], body = 304, b""
    await send({**start, "headers": headers.raw})
    await send({"type": "http.response.body", "body": body})


def _matches(wanted: str, tag: str) -> bool:
    """Compare weakly, as RFC 9110 requires for If-None-Match."""
    return wanted.strip() == "*" or tag in (item.strip().removeprefix("W/") for item in wanted.split(","))
