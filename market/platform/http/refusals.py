"""Problems of a route for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel, Field

from market.platform.http.problem import MEDIA_TYPE, MarketError


class Problem(BaseModel):
    """Problem document (RFC 9457): stable ``code``, ``field`` at fault, ``remedy`` as advice."""

    type: str = Field(examples=["/problems/job-not-found"])
    title: str = Field(examples=["There is no such job"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["You have no job 0x00."])
    code: str = Field(examples=["job-not-found"])
    field: str | None = Field(examples=["job_id"])
    remedy: str | None = Field(examples=["Check the id. `zoo-compute job list` (GET /v1/jobs) lists your jobs."])
    instance: str = Field(examples=["/v1/jobs/0x00"])


def refusals(*errors: type[MarketError]) -> dict[int | str, dict[str, Any]]:
    """Return ``responses`` of a route that can raise ``errors``, besides those of every route."""
    responses: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        _name_refusal(responses.setdefault(error.status, _response()), error)
    return responses


def _response() -> dict[str, Any]:
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
    return {"description": "", "content": {MEDIA_TYPE: content}}


def _name_refusal(response: dict[str, Any], error: type[MarketError]) -> None:
    separator = "; " if response["description"] else ""
    response["description"] += f"{separator}{error.title} (`{error.code}`)"
    document = error(f"{error.title}.").document("/v1/jobs")
    response["content"][MEDIA_TYPE]["examples"][error.code] = {"summary": error.title, "value": document}


def add_refusal(responses: dict[str, Any], error: type[MarketError]) -> None:
    """Add a problem to ``responses`` unless they contain it."""
    response = responses.setdefault(str(error.status), _response())
    response["content"].setdefault(MEDIA_TYPE, _response()["content"][MEDIA_TYPE])  # a route may have another document
    if error.code not in response["content"][MEDIA_TYPE]["examples"]:
        _name_refusal(response, error)
