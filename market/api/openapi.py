"""What the OpenAPI document says of refusals: every one is a problem document."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from market.api.errors import BodyTooLarge, InvalidRequest
from market.api.problem import MEDIA_TYPE, MarketError


class Problem(BaseModel):
    """A refusal (RFC 9457). ``code`` is stable; ``field`` names the input to blame, ``remedy`` what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None
    remedy: str | None
    instance: str


def refusals(*errors: type[MarketError]) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that can raise ``errors``, on top of what every route can."""
    responses: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        entry = responses.setdefault(error.status, _response())
        separator = "; " if entry["description"] else ""
        entry["description"] += f"{separator}{error.title} (`{error.code}`)"
    return responses


def _response() -> dict[str, Any]:
    return {"description": "", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


COMMON = refusals(InvalidRequest, BodyTooLarge)


def install_openapi(app: FastAPI) -> None:
    """Add the problem schema to the app's OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", Problem.model_json_schema())
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def operation_id(route: APIRoute) -> str:
    """The name of the endpoint's function."""
    return route.name
