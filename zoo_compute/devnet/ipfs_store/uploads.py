"""Uploads of files as multipart/form-data."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

_AT_ONCE_BYTES = 256 * 1024
"""Size of a piece for the parser's thread, because a thread switch takes longer than parsing a few bytes."""

Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class BadUpload(ValueError):
    """The request body is not an upload of files."""


class Sink(Protocol[Result_co]):
    """Consumer of one part's bytes."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> Result_co: ...

    def discard(self) -> None:
        """Remove this part after a failed upload, finished or not."""


class _Parts(Generic[Result]):
    def __init__(self, new_sink: Callable[[], Sink[Result]]) -> None:
        self.finished: list[tuple[str, Result]] = []
        self.complete = False
        self._new_sink = new_sink
        self._sinks: list[Sink[Result]] = []

    def on_part_begin(self) -> None:
        self._sink = self._new_sink()
        self._sinks.append(self._sink)
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def on_headers_finished(self) -> None:
        if self._headers.get(b"content-type") == b"application/x-directory":
            raise BadUpload("directories are not supported; add the files one by one")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._sink.write(data[start:end])

    def on_part_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        name = unquote(options.get(b"filename", b"").decode("utf-8", "replace"))
        self.finished.append((name, self._sink.finish()))

    def on_end(self) -> None:
        self.complete = True

    def discard(self) -> None:
        for sink in self._sinks:
            sink.discard()


async def receive_files(request: Request, new_sink: Callable[[], Sink[Result]]) -> list[tuple[str, Result]]:
    """Write each file of the request to a sink as it arrives; return names and results.

    Raises:
        BadUpload: the body is not a complete multipart upload of at least one file.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise BadUpload("expected the file as multipart/form-data")
    parts = _Parts(new_sink)
    try:
        callbacks: Any = {name: getattr(parts, name) for name in dir(parts) if name.startswith("on_")}
        parser = MultipartParser(options[b"boundary"], callbacks)
        pieces: list[bytes] = []
        async for piece in request.stream():
            pieces.append(piece)
            if sum(map(len, pieces)) >= _AT_ONCE_BYTES:
                await run_in_threadpool(parser.write, b"".join(pieces))
                pieces.clear()
        await run_in_threadpool(parser.write, b"".join(pieces))
        if not parts.complete or not parts.finished:
            raise BadUpload("the upload has no complete file")
    except BaseException as error:
        await run_in_threadpool(parts.discard)
        if isinstance(error, FormParserError):
            raise BadUpload(f"malformed multipart/form-data: {error}") from error
        raise
    return parts.finished
