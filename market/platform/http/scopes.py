"""API key scopes of routes."""

from collections.abc import Sequence
from typing import Any

from fastapi.routing import APIRoute

SCOPE_KEY = "x-scope"
"""OpenAPI extension with the scope of each operation."""


def required_scope(route: object, method: str) -> str | None:
    """Return the scope that a route requires; None if any credential suffices."""
    if not isinstance(route, APIRoute):
        return None
    return scope_of((route.openapi_extra or {}).get(SCOPE_KEY, ""), route.tags, method)


def scope_of(own: Any, tags: Sequence[object], method: str) -> str | None:
    """Return the route's own scope (:func:`scoped`), or its tag with ``read`` or ``write``."""
    if own != "":
        return None if own is None else str(own)
    return f"{tags[0]}:{'read' if method in ('GET', 'HEAD') else 'write'}" if tags else None


def scoped(scope: str | None) -> dict[str, str | None]:
    """Return ``openapi_extra`` of a route with its own scope; None: any credential."""
    return {SCOPE_KEY: scope}
