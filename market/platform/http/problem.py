"""Base of the API's errors, which become RFC 9457 problem+json with a stable code."""

import json
from typing import Any, ClassVar

from fastapi import Request
from fastapi.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"


class MarketError(Exception):
    """Base of problems. Subclasses set ``status``, ``code``, ``title``, ``default_remedy``.

    Args:
        detail: one sentence on this occurrence.
        field: dotted path of the invalid input, if any.
        remedy: advice for the caller; default: that of the class.
        extra: further members of the problem document.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str]
    title: ClassVar[str]
    default_remedy: ClassVar[str | None] = None

    def __init__(
        self, detail: str, *, field: str | None = None, remedy: str | None = None, extra: dict[str, Any] | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.remedy = remedy or self.default_remedy
        self.extra = extra or {}

    def document(self, instance: str) -> dict[str, Any]:
        """Return the problem document; ``instance`` is the path of the request."""
        return {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "field": self.field,
            "remedy": self.remedy,
            "instance": instance,
            **self.extra,
        }


class MissingResource(MarketError):
    status = 404


class Conflict(MarketError):
    """The request does not fit the present state."""

    status = 409


class UnprocessableRequest(MarketError):
    status = 422


class _ProblemResponse(JSONResponse):
    """Problem document. Input that UTF-8 cannot encode becomes a question mark."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def problem_response(request: Request, error: MarketError, headers: dict[str, str] | None = None) -> JSONResponse:
    return _ProblemResponse(error.document(request.url.path), error.status, headers=headers)
