"""Which scope of an API key a route needs."""

from collections.abc import Sequence
from typing import Any

from fastapi.routing import APIRoute

SCOPE_KEY = "x-scope"
"""The OpenAPI extension in which each operation names its scope."""


def required_scope(route: object, method: str) -> str | None:
    """The scope that a route needs; None: any credential will do."""
    if not isinstance(route, APIRoute):
        return None
    return scope_of((route.openapi_extra or {}).get(SCOPE_KEY, ""), route.tags, method)


def scope_of(own: Any, tags: Sequence[object], method: str) -> str | None:
    """The scope that a route names itself (:func:`scoped`); else its tag, with ``read`` for GET or ``write``."""
    if own != "":
        return None if own is None else str(own)
    return f"{tags[0]}:{'read' if method in ('GET', 'HEAD') else 'write'}" if tags else None


def scoped(scope: str | None) -> dict[str, str | None]:
    """``openapi_extra`` of a route whose method says too much or too little; None: any credential may use it."""
    return {SCOPE_KEY: scope}
