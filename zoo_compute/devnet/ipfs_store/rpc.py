"""Part of Kubo's RPC (https://docs.ipfs.tech/reference/kubo/rpc/) that clients need.

Served: add, cat, block/get, block/put, block/stat, pin/add, pin/rm, pin/ls, version. Files are built as
``--cid-version=1 --raw-leaves``. Options for another CID are refused.
"""

import json
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from zoo_compute.content.blockstore import BlockNotFound, BlockStore
from zoo_compute.content.packs import FileWriter
from zoo_compute.devnet.ipfs_store.gateway import answer
from zoo_compute.devnet.ipfs_store.uploads import BadUpload, receive_files
from zoo_protocol.content import unixfs
from zoo_protocol.content.cid import DAG_PB, RAW, Cid, ContentError, ContentTooLarge, InvalidCid, of_block, parse

VERSION = "0.1.0"  # of this service, not of Kubo
MAX_BLOCK_PUT_BYTES = 1024 * 1024  # Kubo's limit for block/put
_OPTIONS_OF_ADD = {"cid-version", "raw-leaves", "pin", "chunker", "hash", "cid-base"}
_OPTIONS_OF_BLOCK_PUT = {"cid-codec", "mhtype", "mhlen", "pin", "allow-big-block", "cid-base"}
_NEUTRAL_OPTIONS = {"stream-channels", "timeout", "offline", "quiet", "quieter", "silent", "progress", "encoding"}


class Refused(ValueError):
    """A request that this service does not serve."""


class _FileSink:
    def __init__(self, store: BlockStore, max_bytes: int) -> None:
        self._writer = store.writer()
        self._max_bytes = max_bytes
        self.discard = self._writer.discard

    def write(self, data: bytes) -> None:
        if self._writer.size + len(data) > self._max_bytes:
            raise ContentTooLarge(f"the file exceeds this store's limit of {self._max_bytes} bytes")
        self._writer.write(data)

    def finish(self) -> tuple[unixfs.Link, FileWriter]:
        return self._writer.finish(), self._writer


class _BlockSink:
    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MAX_BLOCK_PUT_BYTES:
            raise ContentTooLarge(f"a block may have {MAX_BLOCK_PUT_BYTES} bytes; add larger content as a file")

    def finish(self) -> bytes:
        return bytes(self._data)

    def discard(self) -> None:
        """Do nothing: the block is not stored yet."""


class Rpc:
    """Route handlers of the RPC over one store."""

    def __init__(self, store: BlockStore, max_file_bytes: int) -> None:
        self._store = store
        self._max_file_bytes = max_file_bytes

    async def add(self, request: Request) -> Response:
        _require(request, "cid-version", {"1"})
        _require(request, "raw-leaves", {"true"})
        _require(request, "chunker", {"size-262144"}, default="size-262144")
        _require(request, "hash", {"sha2-256"}, default="sha2-256")
        _require(request, "cid-base", {"base32"}, default="base32")
        _refuse_others(request, _OPTIONS_OF_ADD)
        pin = _flag(request, "pin", default=True)
        files = await receive_files(request, lambda: _FileSink(self._store, self._max_file_bytes))
        lines = []
        try:
            for name, (root, writer) in files:
                await run_in_threadpool(writer.commit, pin=pin)
                lines.append({"Name": name or str(root.cid), "Hash": str(root.cid), "Size": str(root.dag_bytes)})
        finally:  # the disk may be full, or the client disconnected
            for _name, (_root, writer) in files[len(lines) :]:
                writer.discard()
        return Response("".join(json.dumps(line) + "\n" for line in lines), media_type="application/json")

    def cat(self, request: Request) -> Response:
        root = _cid(request)
        start = _number(request, "offset") or 0
        length = _number(request, "length")
        size = unixfs.file_size(root, self._store.get)
        stop = size if length is None else min(size, start + length)
        pieces = self._store.read(root, max_bytes=size, start=start, stop=stop)
        return answer(pieces, stop - start, "application/octet-stream", {"X-Stream-Output": "1"})

    def block_get(self, request: Request) -> Response:
        return Response(self._store.get(_cid(request)), media_type="application/octet-stream")

    async def block_put(self, request: Request) -> Response:
        codec = _require(request, "cid-codec", {"raw", "dag-pb"}, default="raw")
        _require(request, "mhtype", {"sha2-256"}, default="sha2-256")
        _require(request, "mhlen", {"-1", "32"}, default="-1")
        _require(request, "allow-big-block", {"false"}, default="false")
        _require(request, "cid-base", {"base32"}, default="base32")
        _refuse_others(request, _OPTIONS_OF_BLOCK_PUT)
        [(_name, data), *others] = await receive_files(request, _BlockSink)
        if others:
            raise Refused("put one block at a time")
        cid = of_block(RAW if codec == "raw" else DAG_PB, data)
        await run_in_threadpool(self._store.put, cid, data)
        if _flag(request, "pin", default=False):
            await run_in_threadpool(self._store.pin, cid)
        return JSONResponse({"Key": str(cid), "Size": len(data)})

    def block_stat(self, request: Request) -> Response:
        cid = _cid(request)
        return JSONResponse({"Key": str(cid), "Size": self._store.block_size(cid)})

    def pin_add(self, request: Request) -> Response:
        _require(request, "recursive", {"true"}, default="true")
        cid = _cid(request)
        self._store.pin(cid)
        return JSONResponse({"Pins": [str(cid)]})

    def pin_rm(self, request: Request) -> Response:
        cid = _cid(request)
        if not self._store.unpin(cid):
            raise BlockNotFound("not pinned or pinned indirectly")
        return JSONResponse({"Pins": [str(cid)]})

    def pin_ls(self, request: Request) -> Response:
        _require(request, "type", {"recursive"}, default="recursive")
        if not request.query_params.get("arg"):
            cids = list(self._store.pins())
        else:
            cids = [_cid(request)]
            if not self._store.is_pinned(cids[0]):
                raise BlockNotFound(f"path '/ipfs/{cids[0]}' is not pinned")
        return JSONResponse({"Keys": {str(cid): {"Type": "recursive"} for cid in cids}})

    def version(self, _request: Request) -> Response:
        return JSONResponse({"Version": VERSION, "System": "zoo-compute ipfs_store"})


def application(store: BlockStore, *, max_file_bytes: int) -> ASGIApp:
    """Return the RPC as ASGI application, without authentication: bind it to localhost."""
    rpc = Rpc(store, max_file_bytes)
    commands: dict[str, Callable[[Request], Response | Awaitable[Response]]] = {
        "add": rpc.add,
        "cat": rpc.cat,
        "block/get": rpc.block_get,
        "block/put": rpc.block_put,
        "block/stat": rpc.block_stat,
        "pin/add": rpc.pin_add,
        "pin/rm": rpc.pin_rm,
        "pin/ls": rpc.pin_ls,
        "version": rpc.version,
    }
    return Starlette(
        routes=[Route(f"/api/v0/{path}", command, methods=["POST"]) for path, command in commands.items()],
        middleware=[Middleware(_NoBrowsers)],
        exception_handlers={
            Refused: _client_error,
            BadUpload: _client_error,
            ContentError: _client_error,
            BlockNotFound: _not_found,
            ClientDisconnect: _client_error,
        },
    )


class _NoBrowsers:
    """Middleware that refuses web pages' requests, which can reach localhost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and any(name == b"origin" for name, _value in scope["headers"]):
            response = _error("requests from web pages are refused", code=0, status=403)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _error(message: str, *, code: int, status: int) -> JSONResponse:
    return JSONResponse({"Message": message, "Code": code, "Type": "error"}, status_code=status)


async def _client_error(_request: Request, error: Exception) -> Response:
    return _error(str(error), code=1, status=400)


async def _not_found(_request: Request, error: Exception) -> Response:
    return _error(str(error), code=0, status=500)  # Kubo's status for missing content


def _cid(request: Request) -> Cid:
    values = request.query_params.getlist("arg")
    if len(values) != 1:
        raise Refused('give exactly one "arg": a CID')
    try:
        return parse(values[0].removeprefix("/ipfs/"))
    except InvalidCid as error:
        raise Refused(f"invalid path {values[0][:80]!r}: {error}") from error


def _flag(request: Request, name: str, *, default: bool) -> bool:
    return _require(request, name, {"true", "false"}, default=str(default).lower()) == "true"


def _number(request: Request, name: str) -> int | None:
    value = request.query_params.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise Refused(f'option "{name}" must be a number of bytes, got {value[:40]!r}')
    return int(value)


def _require(request: Request, name: str, accepted: set[str], *, default: str = "") -> str:
    value = request.query_params.get(name, default).lower()
    if value not in accepted:
        raise Refused(f'option "{name}" must be {" or ".join(sorted(accepted))} here, got {value[:40]!r}')
    return value


def _refuse_others(request: Request, known: set[str]) -> None:
    for name, value in request.query_params.items():
        if name not in known | _NEUTRAL_OPTIONS and value.lower() != "false":
            raise Refused(f'option "{name[:40]}" is not served here')
