"""Texts with half of a surrogate pair, which JSON can hold and UTF-8 cannot encode."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from kit.api.submission_fixtures import (  # noqa: F401  (fixtures)
    Body,
    app_on_chain,
    fake_chain,
    funded_payer,
    job_body,
    stored_dataset,
)

HALF = "\ud800"


def _post(api: httpx.Client, method: str, path: str, body: Any, caller: Caller) -> httpx.Response:
    headers = {**caller.headers, "Content-Type": "application/json"}
    return api.request(method, path, content=json.dumps(body), headers=headers)  # httpx cannot encode it


def _spoiled(value: Any) -> Iterator[Any]:
    """Return the document for each key and text that ``HALF`` can replace, or get it."""
    if isinstance(value, str):
        yield HALF
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ([*value[:index], worse, *value[index + 1 :]] for worse in _spoiled(item))
    elif isinstance(value, dict):
        yield {**value, HALF: 1}
        for key, item in value.items():
            yield from ({**value, key: worse} for worse in _spoiled(item))


def test_half_surrogate_in_key_is_refused(api: httpx.Client) -> None:
    caller = sign_in(api)
    answer = _post(api, "POST", "/v1/me/keys", {"name": "a", HALF: 1}, caller)
    assert refusal(answer, 422, "invalid-request")["field"] == r"\ud800"


@pytest.mark.parametrize("section", ["model_config", "training_config", "data_config", "requirements"])
def test_half_surrogate_in_job_is_refused(api: httpx.Client, payer: Caller, body: Body, section: str) -> None:
    for document in _spoiled({section: body.get(section, {}) | {"name": "x"}}):
        answer = _post(api, "POST", "/v1/quotes", body | document, payer)
        assert answer.status_code == 422, answer.text
        assert answer.json()["remedy"]


def test_half_surrogates_are_no_failure_anywhere(api: httpx.Client, app: FastAPI) -> None:
    caller = sign_in(api)
    sent = 0
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None or "example" not in content:
                continue
            filled = path.format_map(_Ids())
            for document in _spoiled(content["example"]):
                answer = _post(api, method.upper(), filled, document, caller)
                assert answer.status_code not in (500, 503), (method, filled, document, answer.text)
                sent += 1
    assert sent > 100


@pytest.mark.parametrize("path", ["/v1/jobs?tier=%ED%A0%80", "/v1/jobs?%ED%A0%80=1", "/v1/jobs/%ED%A0%80", "/v1/me"])
def test_half_surrogate_outside_body_is_no_failure(api: httpx.Client, path: str) -> None:
    half = HALF.encode("utf-8", "surrogatepass")
    answer = api.get(path, headers={**sign_in(api).headers, "If-None-Match": half, "X-Request-ID": half})
    assert answer.status_code < 500, answer.text


class _Ids(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "0x" + "ab" * 32 if name == "job_id" else "1"
