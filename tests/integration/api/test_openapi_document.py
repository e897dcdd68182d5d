"""The OpenAPI document is complete: names, descriptions, refusals, fitting examples."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi import FastAPI
from kit.api.clients import sign_in

from market.api.problem_pages import known_problems
from market.platform.http.problem import MEDIA_TYPE

Schema = dict[str, Any]


@pytest.fixture
def document(app: FastAPI) -> Schema:
    return app.openapi()


def operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Return (method, path, operation)."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def bodies(operation: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Return (status or "request", media type, content) of all bodies."""
    for where, body in [("request", operation.get("requestBody", {})), *operation["responses"].items()]:
        for media_type, content in body.get("content", {}).items():
            yield where, media_type, content


def test_every_operation_is_described(document: Schema) -> None:
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    names = []
    for _, path, operation in operations(document):
        assert operation["summary"], path
        assert len(operation["description"]) > 10, path
        assert set(operation["tags"]) <= described, path
        assert len(operation["tags"]) == 1, path
        assert all(set(one) <= set(document["components"]["securitySchemes"]) for one in operation.get("security", []))
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), f"{path}: {parameter['name']}"
        names.append(operation["operationId"])
    assert len(names) == len(set(names)) > 60
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names)
    assert described == {operation["tags"][0] for _, _, operation in operations(document)}


def test_every_refusal_is_known_problem_with_example(document: Schema) -> None:
    known = known_problems()
    seen = set()
    for _, path, operation in operations(document):
        for where, media_type, content in bodies(operation):
            if media_type != MEDIA_TYPE:
                continue
            assert content["examples"], f"{path} {where}"
            for code, example in content["examples"].items():
                assert f"`{code}`" in operation["responses"][where]["description"]
                assert example["value"]["code"] == code
                assert example["value"]["status"] == known[code].status == int(where), f"{path} {code}"
                seen.add(code)
        if "security" in operation:
            assert {"not-authenticated", "scope-missing"} <= set(codes(operation)), path
        assert {"invalid-request", "rate-limited", "internal-error"} <= set(codes(operation)), path
    # Not part of any operation; the console's routes are pages, and samples are requested there only.
    of_samples = {"no-model-yet", "model-too-large", "samples-busy", "sample-not-found"}
    of_pages = {code for code in known if code.startswith("console-")} | of_samples
    assert set(known) - seen - of_pages == {"not-found", "method-not-allowed"}


def codes(operation: Schema) -> list[str]:
    return [
        code for _, media_type, content in bodies(operation) if media_type == MEDIA_TYPE for code in content["examples"]
    ]


def test_every_parameter_and_body_has_valid_example(document: Schema) -> None:
    schemas: dict[str, Schema] = {}
    values: dict[str, list[Any]] = {}

    def hold(schema: Schema, examples: list[Any], where: str) -> None:
        assert where not in schemas
        schemas[where] = {"type": "array", "minItems": 1, "items": schema}
        values[where] = examples

    for model, schema in document["components"]["schemas"].items():
        for name, field in schema.get("properties", {}).items():
            if not speaks_for_itself(field):
                hold(field, field.get("examples", []), f"{model}.{name}")
    for method, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            given = [parameter["example"]] if "example" in parameter else []
            hold(parameter["schema"], given, f"{method} {path} {parameter['name']}")
        for where, media_type, content in bodies(operation):
            hold(content.get("schema", {}), examples_of(content), f"{method} {path} {where} {media_type}")
        for where, response in operation["responses"].items():
            for name, header in response.get("headers", {}).items():
                hold(header["schema"], header["schema"].get("examples", []), f"{method} {path} {where} {name}")
    validator = jsonschema_rs.validator_for({"properties": schemas, "components": document["components"]})
    faults = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(values)]
    assert not faults, "\n".join(faults)


def speaks_for_itself(field: Schema) -> bool:
    if "$ref" in field or "enum" in field or "const" in field or field.get("type") == "boolean":
        return "examples" not in field
    if "anyOf" in field and "examples" not in field:
        return all(speaks_for_itself(one) for one in field["anyOf"] if one.get("type") != "null")
    if "examples" in field:
        return False
    inner = field.get("items", field.get("additionalProperties"))
    return isinstance(inner, dict) and speaks_for_itself(inner)


def examples_of(content: Schema) -> list[Any]:
    if "example" in content:
        return [content["example"]]
    return [one["value"] for one in content.get("examples", {}).values()]


def test_example_amounts_add_up(document: Schema) -> None:
    content = document["paths"]["/v1/jobs/{job_id}/receipt"]["get"]["responses"]["200"]["content"]
    receipt = content["application/json"]["example"]
    paid, fee, refund, escrowed = (int(receipt[f"{name}_wei"]) for name in ("paid", "fee", "refund", "escrowed"))
    assert paid + fee + refund == escrowed
    assert fee * 10_000 == (paid + fee) * 500


def test_every_request_example_is_well_formed(document: Schema, api: httpx.Client) -> None:
    """The market may refuse an example for its state, never for its form."""
    asked = 0
    for method, path, operation in operations(document):
        if not (path.startswith("/v1/") and (method != "get" or operation.get("parameters"))):
            continue
        parameters = {one["name"]: one for one in operation.get("parameters", [])}
        values = {name: one["example"] for name, one in parameters.items()}
        url = re.sub(r"{(\w+)}", lambda match, values=values: str(values[match[1]]), path)
        query = {name: values[name] for name, one in parameters.items() if one["in"] == "query"}
        headers = {name: str(values[name]) for name, one in parameters.items() if one["in"] == "header"}
        headers |= sign_in(api).headers
        request = operation.get("requestBody", {}).get("content", {})
        sent = examples_of(request.get("application/json", {})) or [None]
        for number, body in enumerate(sent):
            one = {name: f"{value}{number}" if name == "idempotency-key" else value for name, value in headers.items()}
            if isinstance(body, dict) and "wait_seconds" in body:
                body = body | {"wait_seconds": 0}
            answer = api.request(method, url, params=query, json=body, headers=one)
            asked += 1
            code = answer.json().get("code") if answer.headers.get("content-type") == MEDIA_TYPE else None
            assert code != "invalid-request", f"{method} {path}: {answer.text}"
            assert answer.status_code < 500 or answer.status_code == 503, f"{method} {path}: {answer.text}"
            assert code is None or code in codes(operation), f"{method} {path}: {code}"
    assert asked > 50
