"""The IPFS trustless gateway (https://specs.ipfs.tech/http-gateways/trustless-gateway/), and plain file reads.

``GET /ipfs/{cid}`` gives the file (with ranges), ``?format=raw`` its root block, ``?format=car`` all its blocks; the
``Accept`` header chooses likewise. Content is from strangers, so nothing is ever served as a type a browser renders.
"""

import re
from collections.abc import Awaitable, Callable, Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from zoo_compute.blockstore import BlockNotFound, BlockStore
from zoo_compute.devnet.ipfs_store.answers import answer
from zoo_protocol import car, unixfs
from zoo_protocol.cid import Cid, InvalidBlock, InvalidCid, parse

RAW_TYPE = "application/vnd.ipld.raw"
CAR_TYPE = "application/vnd.ipld.car"
PROBE_CID = "bafkqaaa"  # the empty identity block, by which clients probe gateways

_FORMATS = {"raw": RAW_TYPE, "car": CAR_TYPE}
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class InvalidFormat(ValueError):
    """The client asks for a response format that is not served."""


class Gateway:
    """The gateway's answers, over one store."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store

    def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def content(self, request: Request) -> Response:
        text = request.path_params["cid"]
        kind = _wanted_type(request)
        if text == PROBE_CID:
            return Response(b"", media_type=kind or "application/octet-stream")
        root = parse(text)
        tag = f'"{root}.{kind[-3:]}"' if kind else f'"{root}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "public, max-age=29030400, immutable",
            "X-Content-Type-Options": "nosniff",
            "X-Ipfs-Path": f"/ipfs/{root}",
            "X-Ipfs-Roots": str(root),
            "Vary": "Accept",
        }
        if not self._store.has(root):
            raise BlockNotFound(f"{root} is not in this store, which has no peers to ask")
        if tag in [value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
        if kind == RAW_TYPE:
            return Response(self._store.get(root), headers=headers | _attachment(root, "bin"), media_type=RAW_TYPE)
        if kind == CAR_TYPE:
            archive = car.write(root, self._store.blocks(root))
            full_type = f"{CAR_TYPE}; version=1; order=dfs; dups=n"
            size = unixfs.file_size(root, self._store.get)
            return _answer(request, archive, size, full_type, headers | _attachment(root, "car"))
        return self._file(request, root, headers)

    def _file(self, request: Request, root: Cid, headers: dict[str, str]) -> Response:
        size = unixfs.file_size(root, self._store.get)
        headers["Accept-Ranges"] = "bytes"
        start, stop, status = 0, size, 200
        match = _RANGE.fullmatch(request.headers.get("range", ""))
        if match and (match[1] or match[2]):  # any other range, such as several at once, may be answered in full
            if match[1]:
                start = int(match[1])
                stop = min(size, int(match[2]) + 1) if match[2] else size
            else:
                start = max(0, size - int(match[2]))
            if start >= stop:
                return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{size}"})
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        headers["Content-Length"] = str(stop - start)
        pieces = self._store.read(root, max_bytes=size, start=start, stop=stop)
        return _answer(request, pieces, stop - start, "application/octet-stream", headers, status)


def application(store: BlockStore) -> ASGIApp:
    """The gateway as an ASGI application; it only reads, and may face the public."""
    gateway = Gateway(store)
    return Starlette(
        routes=[
            Route("/ipfs/{cid}", gateway.content, methods=["GET", "HEAD"]),
            Route("/healthz", gateway.health, methods=["GET"]),
        ],
        exception_handlers={
            InvalidCid: _explain(400),
            InvalidFormat: _explain(406),
            InvalidBlock: _explain(422),  # a dag-pb block that is no file; format=raw still gives it
            BlockNotFound: _explain(404),
        },
    )


def _explain(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(_request: Request, error: Exception) -> Response:
        return PlainTextResponse(f"{error}\n", status_code=status)

    return handler


def _wanted_type(request: Request) -> str | None:
    """The block or archive type the client asks for; None for the file itself."""
    chosen = request.query_params.get("format")
    if chosen is not None:
        if chosen not in _FORMATS:
            raise InvalidFormat(f"format {chosen[:40]!r} is not served; use raw or car, or none for the file itself")
        return _FORMATS[chosen]
    accepted = {entry.split(";")[0].strip() for entry in request.headers.get("accept", "").split(",")}
    return next((kind for kind in _FORMATS.values() if kind in accepted), None)


def _attachment(root: Cid, suffix: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{root}.{suffix}"'}


def _answer(
    request: Request,
    pieces: Iterable[bytes | memoryview],
    size: int,
    kind: str,
    headers: dict[str, str],
    status: int = 200,
) -> Response:
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=kind)
    return answer(pieces, size, kind, headers, status)
