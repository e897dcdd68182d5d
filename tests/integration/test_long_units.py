"""A unit that cannot be done before its round is given up: the quote says so, and the submission too."""

import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from api_support import Caller, refusal, sign_in
from fastapi import FastAPI
from jobs_world import SPEC, ZEN, FakeChain, store_dataset

from market.storage.service import Storage


@pytest.fixture
def payer(api: httpx.Client, app: FastAPI) -> Caller:
    caller, chain = sign_in(api), FakeChain()
    chain.balances[caller.address] = 100 * ZEN
    app.state.services = replace(app.state.services, chain=chain)
    return caller


@pytest.fixture
def body(storage: Storage) -> dict[str, Any]:
    """A unit has 1.7 GFLOP in 10 segments, which takes the 40 GFLOP/s of the devnet's Bronze 0.04 s."""
    training = {**SPEC["training_config"], "inner_steps": 1000, "segment_steps": 100, "batch_size": 64}
    return {
        **SPEC,
        "training_config": training,
        "data_config": {"dataset": store_dataset(storage)},
        "tier": "bronze",
        "nodes": 4,
        "budget_max": str(ZEN),
        "max_price": str(3 * ZEN),
        "wait_until": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }


def _give_rounds(app: FastAPI, seconds: float) -> None:
    settings = app.state.services.settings.model_copy(update={"round_deadline_seconds": seconds})
    app.state.services = replace(app.state.services, settings=settings)


def test_a_quote_warns_of_units_that_slow_nodes_do_too_late_and_refuses_what_none_can_do(
    api: httpx.Client, app: FastAPI, payer: Caller, body: dict[str, Any]
) -> None:
    def codes(answer: httpx.Response) -> list[str]:
        return [point["code"] for point in answer.json()["advice"]]

    ask = {"url": "/v1/quotes", "json": body, "headers": payer.headers}
    quoted = api.post(**ask)
    unit = quoted.json()["expected_throughput"]["compute_seconds"]
    assert "long_units" not in codes(quoted)
    _give_rounds(app, unit / 2)  # three of them: longer than the unit, and shorter than three units
    assert "long_units" in codes(api.post(**ask))
    _give_rounds(app, unit / 100)
    problem = refusal(api.post(**ask), 422, "invalid-order")
    assert (problem["field"], problem["reason"]) == ("training_config.inner_steps", "unit_too_long")
    permit = {"deadline": 2**40 - 1, "signature": "0x" + "11" * 65}
    signed = body | {"nonce": str(secrets.randbits(64)), "order_signature": "0x" + "11" * 65, "permit": permit}
    refused = refusal(api.post("/v1/jobs", json=signed, headers=payer.headers), 422, "invalid-order")
    assert refused["reason"] == "unit_too_long"
