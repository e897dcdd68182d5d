"""IPFS trustless gateway (https://specs.ipfs.tech/http-gateways/), and plain file reads.

- ``GET /ipfs/{cid}`` returns the file (with ranges).
- ``?format=raw`` returns its root block, also of a block that is not a file.
- ``?format=car`` returns its blocks, selected by ``dag-scope`` or ``entity-bytes``.

The ``Accept`` header selects a format too. Content is untrusted, so its media type is never one that browsers render.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_protocol.content import car, unixfs
from zoo_protocol.content.cid import Cid, ContentTooLarge, InvalidBlock, InvalidCid, parse

RAW_TYPE = "application/vnd.ipld.raw"
CAR_TYPE = "application/vnd.ipld.car"
PROBE_CID = "bafkqaaa"  # the empty identity block: clients probe gateways with it
_FORMATS = {"raw": RAW_TYPE, "car": CAR_TYPE}
_PROBES = {RAW_TYPE: b"", CAR_TYPE: b"\x19\xa2\x65roots\x81\xd8\x2a\x45\x00\x01\x55\x00\x00\x67version\x01"}
_CAR_VARIANTS = {"version": ("1",), "order": ("dfs", "unk")}
"""Accepted parameters. ``dups`` is ignored: each block is sent once, and the response states it."""
_RANGE = re.compile(r"bytes=(\d{0,1000})-(\d{0,1000})", re.ASCII | re.IGNORECASE)
_ENTITY_BYTES = re.compile(r"(-?\d{1,1000}):(-?\d{1,1000}|\*)", re.ASCII)
_SCOPES = ("all", "entity", "block")
_WHOLE_BYTES = 4 << 20
"""Largest body in one piece. A stream passes each piece between threads, which takes longer than reading it.
Each open request may hold this much memory."""


class InvalidFormat(ValueError):
    """Requested response format that is not served."""


class InvalidScope(ValueError):
    """Requested part of a file that an archive cannot have."""


class Gateway:
    """Route handlers of the gateway over one store."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store

    def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def content(self, request: Request) -> Response:
        text = request.path_params["cid"]
        kind = _wanted_type(request)
        if text == PROBE_CID:
            return Response(_PROBES.get(kind or "", b""), media_type=kind or "application/octet-stream")
        root = parse(text)
        scope = _scope(request) if kind == CAR_TYPE else "all"
        form = f".{kind[-3:]}" if kind else ""
        tag = f'"{root}{form}"' if scope == "all" else f'"{root}{form}.{scope}"'
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
        known = {value.strip().removeprefix("W/") for value in request.headers.get("if-none-match", "").split(",")}
        if known & {tag, "*"}:
            return Response(status_code=304, headers=headers)
        if kind == RAW_TYPE:
            return Response(self._store.get(root), headers=headers | _attachment(root, "bin"), media_type=RAW_TYPE)
        if kind == CAR_TYPE:
            return self._archive(request, root, scope, headers | _attachment(root, "car"))
        return self._file(request, root, headers)

    def _archive(self, request: Request, root: Cid, scope: str, headers: dict[str, str]) -> Response:
        size = 0 if scope == "block" else self._file_size(root)
        if scope in ("all", "entity"):
            blocks = self._store.blocks(root)
        else:
            start, stop = (0, 0) if scope == "block" else _part(scope, size)
            blocks, size = self._store.read_blocks(self._proof(root, size, start, stop)), stop - start
        full_type = f"{CAR_TYPE}; version=1; order=dfs; dups=n"
        return _answer(request, car.write(root, blocks), size, full_type, headers)

    def _file_size(self, root: Cid) -> int:
        try:
            return unixfs.file_size(root, self._store.get)
        except InvalidBlock as error:
            raise InvalidFormat(
                f"{root} is {error}; only this block is served: use format=raw, or format=car with dag-scope=block"
            ) from error

    def _proof(self, root: Cid, size: int, start: int, stop: int) -> list[Cid]:
        """Return the blocks with bytes ``start`` to ``stop`` of a file, in archive order."""
        needed = {root: None}

        def get(cid: Cid) -> bytes:
            needed[cid] = None
            return self._store.get(cid)

        if start < stop:
            for leaf in unixfs.leaves(root, get, max_bytes=size, start=start, stop=stop):
                needed[leaf.cid] = None
        return list(needed)

    def _file(self, request: Request, root: Cid, headers: dict[str, str]) -> Response:
        size = self._file_size(root)
        headers["Accept-Ranges"] = "bytes"
        start, stop, status = 0, size, 200
        is_of_this = request.headers.get("if-range", headers["ETag"]) == headers["ETag"]
        match = _RANGE.fullmatch(request.headers.get("range", "")) if is_of_this else None
        if match and (match[1] or match[2]):  # several ranges, or malformed ones, get the whole file
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
    """Return the gateway as an ASGI application. It is read-only, so it may be public."""
    gateway = Gateway(store)
    return Starlette(
        routes=[
            Route("/ipfs/{cid}", gateway.content, methods=["GET", "HEAD"]),
            Route("/healthz", gateway.health, methods=["GET"]),
        ],
        exception_handlers={
            InvalidCid: _explain(400),
            InvalidFormat: _explain(406),
            InvalidScope: _explain(400),
            InvalidBlock: _explain(422),  # a file has a malformed block; format=raw still returns it
            ContentTooLarge: _explain(422),  # more blocks than a file may have
            BlockNotFound: _explain(404),
            404: _no_path,
        },
    )


def _explain(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(_request: Request, error: Exception) -> Response:
        return PlainTextResponse(f"{error}\n", status_code=status)

    return handler


async def _no_path(_request: Request, _error: Exception) -> Response:
    text = "unknown path: content is at /ipfs/{cid}, without paths below it"
    return PlainTextResponse(f"{text}\n", status_code=404)


def _wanted_type(request: Request) -> str | None:
    """Return the requested block or archive type; None for the file itself."""
    chosen = request.query_params.get("format")
    if chosen is not None and chosen not in _FORMATS:
        raise InvalidFormat(f"format {chosen[:40]!r} is not served; use raw or car, or none for the file itself")
    entries = [_accepted(entry) for line in request.headers.getlist("accept") for entry in line.split(",")]
    kinds = _FORMATS.values() if chosen is None else (_FORMATS[chosen],)
    wanted = [entry for entry in entries if entry[0] in kinds and 0 < entry[1] <= 1]
    if chosen is not None and not wanted:
        wanted = [(_FORMATS[chosen], 1.0, {})]
    served = [(kind, quality) for kind, quality, variant in wanted if _is_served(request, kind, variant)]
    takes_file = chosen is None and any(kind == "*/*" and quality for kind, quality, _variant in entries)
    if wanted and not served and not takes_file:
        raise InvalidFormat("archives are served in version 1 and depth first (order dfs) only")
    return max(served, key=lambda entry: entry[1], default=(None, 0))[0]


def _accepted(entry: str) -> tuple[str, float, dict[str, str]]:
    """Return (type, quality or 0, other parameters) of an entry of an ``Accept`` header."""
    kind, *parameters = (part.strip().lower() for part in entry.split(";"))
    named = {name.strip(): value.strip(' "') for name, _, value in (part.partition("=") for part in parameters)}
    try:
        return kind, float(named.pop("q", 1)), named
    except ValueError:
        return kind, 0.0, named


def _is_served(request: Request, kind: str, variant: dict[str, str]) -> bool:
    """Return True if the query's parameters, or else the ``variant``, are accepted."""
    asked = {name: request.query_params.get(f"car-{name}", variant.get(name)) for name in _CAR_VARIANTS}
    return kind != CAR_TYPE or all(asked[name] in (None, *known) for name, known in _CAR_VARIANTS.items())


def _scope(request: Request) -> str:
    """Return the requested part of the file: one of ``_SCOPES``, or bytes as ``from:to``."""
    part = request.query_params.get("entity-bytes")
    scope = request.query_params.get("dag-scope", "all") if part is None else part
    if (part is not None and not _ENTITY_BYTES.fullmatch(part)) or (part is None and scope not in _SCOPES):
        raise InvalidScope(f"unknown scope {scope[:40]!r}; use dag-scope=block, entity or all, or entity-bytes=from:to")
    return scope


def _part(entity_bytes: str, size: int) -> tuple[int, int]:
    """Return (start, stop) of ``from:to`` in ``size`` bytes; negative: from the end."""
    first, last = entity_bytes.split(":")
    start = int(first) if int(first) >= 0 else max(0, size + int(first))
    if start >= size > 0:
        raise InvalidScope(f"the file has {size} bytes; expected a start before its end, not {first}")
    stop = size if last == "*" else min(size, int(last) + 1 + (size if int(last) < 0 else 0))
    return start, max(start, stop)


def _attachment(root: Cid, suffix: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{root}.{suffix}"'}


def answer(
    pieces: Iterable[bytes | memoryview], size: int, kind: str, headers: Mapping[str, str], status: int = 200
) -> Response:
    """Return content of about ``size`` bytes, as a stream above ``_WHOLE_BYTES``."""
    if size > _WHOLE_BYTES:
        return StreamingResponse(pieces, status_code=status, headers=headers, media_type=kind)
    return Response(b"".join(pieces), status_code=status, headers=headers, media_type=kind)


def _answer(
    request: Request,
    pieces: Iterable[bytes | memoryview],
    size: int,
    kind: str,
    headers: dict[str, str],
    status: int = 200,
) -> Response:
    if request.method == "HEAD":  # a plain response would have a length of 0
        return StreamingResponse((), status_code=status, headers=headers, media_type=kind)
    return answer(pieces, size, kind, headers, status)
