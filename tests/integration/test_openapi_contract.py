"""The API against its own OpenAPI document: generated requests, valid and spoiled, by a caller who is signed in.

No answer may be a failure of the server, have a status or a content type that the document does not name, or a body
that does not fit its schema.
"""

from dataclasses import replace
from typing import Any

import httpx
import pytest
import schemathesis
from api_support import sign_in
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from jobs_world import ZEN, FakeChain
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 12
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture
def app(app: FastAPI) -> FastAPI:
    app.state.services = replace(app.state.services, chain=FakeChain())
    return app


def test_every_operation_answers_as_its_document_says(api: httpx.Client, app: FastAPI) -> None:
    caller = sign_in(api)
    app.state.services.chain.balances[caller.address] = 100 * ZEN
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.config.update(base_url=str(api.base_url))
    failures: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            if isinstance(case.body, dict) and "wait_seconds" in case.body:
                case.body["wait_seconds"] = 0
            response = case.call(headers=caller.headers)
            case.validate_response(response, checks=CHECKS)

        try:
            check()
        except BaseException as error:
            failures.append(f"{operation.label}: {error}"[:1500])
    assert not failures, "\n\n".join(failures)
