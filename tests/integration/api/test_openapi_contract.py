"""The API against its OpenAPI document: generated valid and invalid requests.

Each answer has a documented status, content type and code, and a body that fits its schema.
Half of the requests name existing objects.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit.api.clients import Caller, accepted, sign_in
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, FakeChain, World
from kit.profile import examples
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from market.chain.errors import ChainError
from market.chain.rpc.client import ChainClient
from market.chain.views import ChainViews
from market.platform.http.problem import MEDIA_TYPE
from market.platform.http.services import Services

CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = examples(2, long=14)
DOWN = 503  # a documented answer, where the chain or storage is away


class AwayChain(FakeChain):
    client: ChainClient

    def treasury(self) -> None:
        raise ChainError("away")


@pytest.fixture
def app(app: FastAPI) -> Iterator[FastAPI]:
    services: Services = app.state.services
    chain = AwayChain()
    chain.client = services.part(ChainViews).client
    app.state.services = services.with_part(ChainViews, chain)
    services.settings.webhooks_to_private_addresses = True
    yield app
    services.settings.webhooks_to_private_addresses = False


@pytest.fixture
def known(api: httpx.Client, app: FastAPI, world: World) -> tuple[Caller, dict[str, Any]]:
    nodes = [world.node() for _ in range(4)]
    job_id = world.running(nodes)
    world.deliver(nodes[0])
    caller = sign_in(api, world.wallets[world.read(job_id).payer])
    app.state.services.part(ChainViews).balances[caller.address] = 100 * ZEN
    with world.database.transaction() as session:
        session.connection().exec_driver_sql(
            "UPDATE accounts SET roles = '{admin}' WHERE address = %s", (caller.address,)
        )

    def make(path: str, body: dict[str, Any]) -> int:
        return int(accepted(caller.post(path, json=body), 201)["id"])

    return caller, {
        "job_id": job_id,
        "key_id": make("/v1/me/keys", {"name": "k"}),
        "organisation_id": make("/v1/organisations", {"name": "o"}),
        "webhook_id": make("/v1/webhooks", {"url": "http://127.0.0.1:1/"}),
        "address": caller.address,
        "environment_class": ENVIRONMENT,
    }


@pytest.mark.long
@pytest.mark.sized
def test_every_operation_answers_as_documented(
    api: httpx.Client, app: FastAPI, known: tuple[Caller, dict[str, Any]]
) -> None:
    caller, values = known
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.config.update(base_url=str(api.base_url))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 50
    failures: list[str] = []
    for operation in operations:
        if operation.path == "/v1/auth/session":
            continue  # it would end the caller's own
        endless = operation.path.endswith("/events")  # the stream of a job that exists
        try:
            _check(operation, caller, {} if endless else values)
        except BaseException as error:
            failures.append(f"{operation.label}: {error}"[:1500])
    assert not failures, "\n\n".join(failures)


def _check(operation: Any, caller: Caller, values: dict[str, Any]) -> None:
    turn = count()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)))
    def check(case: Any) -> None:
        if isinstance(case.body, dict) and "wait_seconds" in case.body:
            case.body["wait_seconds"] = 0  # do not wait for work
        if case.path_parameters and next(turn) % 2:
            case.path_parameters |= {name: values.get(name, given) for name, given in case.path_parameters.items()}
        response = case.call(headers=caller.headers, timeout=120)
        assert response.status_code < 500 or response.status_code == DOWN, response.text
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400 and response.headers["content-type"][0] == MEDIA_TYPE:
            named = operation.definition.raw["responses"][str(response.status_code)]["content"][MEDIA_TYPE]
            assert response.json()["code"] in named["examples"], f"undocumented problem: {response.text}"

    check()
