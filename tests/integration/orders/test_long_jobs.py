"""Units that are too long for their round, and jobs that are too long for their escrow."""

import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from kit.jobs.jobs_fixtures import SPEC, ZEN, FakeChain, World, store_dataset

from market.chain.views import ChainViews
from market.domain.network import DEVNET
from market.orders import amendments
from market.platform.storage.client import Storage


@pytest.fixture
def payer(api: httpx.Client, app: FastAPI) -> Caller:
    caller, chain = sign_in(api), FakeChain()
    chain.balances[caller.address] = 100 * ZEN
    app.state.services = app.state.services.with_part(ChainViews, chain)
    return caller


@pytest.fixture
def body(storage: Storage) -> dict[str, Any]:
    """A unit of 1.7 GFLOP in 10 segments takes Bronze of the devnet (40 GFLOP/s) 0.04 s."""
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


def test_quote_warns_of_late_and_refuses_impossible_units(
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
    signed = body | {"nonce": str(secrets.randbits(64)), "order_signature": "0x" + "11" * 65}
    refused = refusal(payer.post("/v1/jobs", json=signed), 422, "invalid-order")
    assert refused["reason"] == "unit_too_long"


def test_job_near_escrow_end_is_stopped_and_paid(world: World, nodes: list[str]) -> None:
    """Otherwise an escrow refund would stop the job, and delivered units would stay unpaid."""
    job_id = world.running(nodes)
    world.deliver(nodes[0])
    end = world.read(job_id).wait_until + timedelta(seconds=DEVNET.longest_training_seconds)
    assert amendments.end_before_refund(world.database, DEVNET, end - timedelta(seconds=1)) == 0
    assert amendments.end_before_refund(world.database, DEVNET, end) == 1
    assert amendments.end_before_refund(world.database, DEVNET, end) == 0
    job = world.read(job_id)
    assert (job.status, job.reason) == ("cancelled", "escrow_ends")
    assert [unit.status for unit in world.units(job_id)] == ["uploaded", "lost", "lost", "lost"]
    assert end + timedelta(days=15) <= job.wait_until + timedelta(seconds=DEVNET.refund_delay_seconds)
