"""Answers whose bodies are content."""

from collections.abc import Iterable, Mapping

from starlette.responses import Response, StreamingResponse

_WHOLE_BYTES = 4 << 20
"""Up to so many bytes are answered at once: of a stream each piece is handed from thread to thread, which takes longer
than to read and verify it. So much may each request that is being answered hold in memory."""


def answer(
    pieces: Iterable[bytes | memoryview], size: int, kind: str, headers: Mapping[str, str], status: int = 200
) -> Response:
    """The ``pieces`` of content of about ``size`` bytes, as a stream where they are many."""
    if size > _WHOLE_BYTES:
        return StreamingResponse(pieces, status_code=status, headers=headers, media_type=kind)
    return Response(b"".join(pieces), status_code=status, headers=headers, media_type=kind)
