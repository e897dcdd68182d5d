"""What the OpenAPI document says beyond the routes' types: refusals, scopes, limits and common headers."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from market.accounts.errors import NotAuthenticated, ScopeMissing
from market.api.errors import BodyTooLarge, InvalidRequest, RateLimited
from market.api.problem import MEDIA_TYPE, MarketError
from market.api.scopes import SCOPE_KEY, scope_of

_METHODS = ("get", "put", "post", "delete", "patch")
_NOT_MODIFIED = {
    "description": "Nothing has changed since the answer with the ETag that If-None-Match names.",
    "headers": {"ETag": {"schema": {"type": "string"}}},
}


class Problem(BaseModel):
    """A refusal (RFC 9457). ``code`` is stable; ``field`` names the input to blame, ``remedy`` what to do."""

    type: str = Field(examples=["/problems/job-not-found"])
    title: str = Field(examples=["There is no such job"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["You have no job 0x00."])
    code: str = Field(examples=["job-not-found"])
    field: str | None
    remedy: str | None = Field(examples=["Check the id; GET /v1/jobs lists your jobs."])
    instance: str = Field(examples=["/v1/jobs/0x00"])


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


COMMON = refusals(InvalidRequest, BodyTooLarge, RateLimited)


def install_openapi(app: FastAPI) -> None:
    """Complete the app's OpenAPI document with what holds for all routes of a kind."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.setdefault("Problem", Problem.model_json_schema())
            for path, operations in document["paths"].items():
                for method in _METHODS:
                    if method in operations:
                        _complete(operations[method], path, method)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    responses = operation["responses"]
    if "security" in operation:
        scope = scope_of(operation.get(SCOPE_KEY, ""), operation["tags"], method.upper())
        operation[SCOPE_KEY] = scope
        for error in (NotAuthenticated, ScopeMissing):
            _add(responses, error)
    if (
        method == "get"
        and path.startswith("/v1/")
        and "application/json" in responses.get("200", {}).get("content", {})
    ):
        responses["304"] = _NOT_MODIFIED


def _add(responses: dict[str, Any], error: type[MarketError]) -> None:
    """Name one more refusal, unless it is named."""
    (status, entry), *_ = refusals(error).items()
    known = responses.setdefault(str(status), entry)
    if f"`{error.code}`" not in known["description"]:
        known["description"] += f"; {entry['description']}"


def operation_id(route: APIRoute) -> str:
    """The name of the endpoint's function."""
    return route.name
