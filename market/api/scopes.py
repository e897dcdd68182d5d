"""Which scope of an API key a route needs."""

from fastapi.routing import APIRoute

_SCOPE_KEY = "x-scope"


def required_scope(route: object, method: str) -> str | None:
    """The scope: the route's tag, and ``read`` for GET or ``write`` for all else; None: any credential will do.

    A route whose method says too much or too little names its scope itself (:func:`scoped`).
    """
    if not isinstance(route, APIRoute) or not route.tags:
        return None
    own = (route.openapi_extra or {}).get(_SCOPE_KEY, "")
    if own != "":
        return None if own is None else str(own)
    return f"{route.tags[0]}:{'read' if method in ('GET', 'HEAD') else 'write'}"


def scoped(scope: str | None) -> dict[str, str | None]:
    """``openapi_extra`` of a route that needs just this scope; None: any credential may use it."""
    return {_SCOPE_KEY: scope}
