"""Responses with content as body."""

from collections.abc import Iterable, Mapping

from starlette.responses import Response, StreamingResponse

_WHOLE_BYTES = 4 << 20
"""Largest body in one piece. A stream passes each piece between threads, which takes longer than reading it.
Each open request may hold this much memory."""


def answer(
    pieces: Iterable[bytes | memoryview], size: int, kind: str, headers: Mapping[str, str], status: int = 200
) -> Response:
    """Return content of about ``size`` bytes, as a stream above ``_WHOLE_BYTES``."""
    if size > _WHOLE_BYTES:
        return StreamingResponse(pieces, status_code=status, headers=headers, media_type=kind)
    return Response(b"".join(pieces), status_code=status, headers=headers, media_type=kind)
