"""Unknown query parameters are refused on every route; known ones work."""

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from kit.api.clients import refusal, sign_in

from market.app import create_app
from market.settings import Settings


def test_mistyped_parameter_error_names_nearest_parameter(api: httpx.Client) -> None:
    problem = refusal(api.get("/v1/providers", params={"limt": 5}), 422, "invalid-request")
    assert problem["field"] == "query.limt"
    assert "'limit'" in str(problem["remedy"])
    assert api.get("/v1/providers", params={"limit": 5}).status_code == 200


def test_parameter_is_refused_when_route_has_none(api: httpx.Client) -> None:
    problem = refusal(api.get("/v1/network", params={"limit": 5}), 422, "invalid-request")
    assert "Remove it" in str(problem["remedy"])
    caller = sign_in(api)
    answer = caller.post("/v1/leases/next?wait=5", json={"kinds": ["train"]})
    assert refusal(answer, 422, "invalid-request")["field"] == "query.wait"


def test_routes_accept_exactly_their_documented_parameters(api: httpx.Client, app: FastAPI) -> None:
    caller, tried = sign_in(api), 0
    for path, operations in app.openapi()["paths"].items():
        if not path.startswith("/v1/"):
            continue
        for method, operation in operations.items():
            place = path.replace("{", "").replace("}", "")
            problem = refusal(
                api.request(method, place, params={"no_such": "1"}, headers=caller.headers), 422, "invalid-request"
            )
            assert "query.no_such" in [error["field"] for error in problem["errors"]]  # type: ignore[attr-defined]
            tried += 1
            names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
            if names:
                answer = api.request(method, place, params=dict.fromkeys(names, "1"), headers=caller.headers)
                problem_of = "problem+json" in answer.headers.get("content-type", "")
                errors = answer.json().get("errors", []) if problem_of else []
                unknown = [e["field"] for e in errors if "no such key" in e["detail"]]
                assert unknown == [], (method, path)
    assert tried > 60


@pytest.mark.parametrize("path", ["/console/?tab=jobs", "/healthz?probe=1", "/problems?x=1", "/docs?x=1"])
def test_pages_and_probes_ignore_unknown_parameters(api: httpx.Client, path: str) -> None:
    assert api.get(path, follow_redirects=True).status_code == 200


def test_preflight_is_answered_and_refusal_is_readable(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"cors_origins": "https://app.test"}))
    client, headers = TestClient(app), {"Origin": "https://app.test"}
    asked = headers | {"Access-Control-Request-Method": "GET"}
    assert client.options("/v1/providers?limt=5", headers=asked).status_code == 200
    answer = client.get("/v1/providers?limt=5", headers=headers)
    refusal(answer, 422, "invalid-request")
    assert answer.headers["access-control-allow-origin"] == "https://app.test"
