"""Quotes and jobs over HTTP, until a job is in the order book."""

from dataclasses import replace

import httpx
import pytest
from kit.api.clients import Caller, accepted, sign_in
from kit.api.submission_fixtures import (  # noqa: F401  (fixtures)
    Body,
    app_on_chain,
    fake_chain,
    funded_payer,
    job_body,
    sign_job,
    stored_dataset,
    written,
)
from kit.jobs.jobs_fixtures import ZEN, opened
from sqlalchemy import select

from market.chain.contracts.codec import encode_call
from market.chain.models import TxIntent
from market.domain.lifecycle import IntentStatus
from market.domain.money import format_zen
from market.domain.nodes.placement import Requirements
from market.jobs.models import Job
from market.jobs.service import get
from market.orders import submission
from market.payments.payables.service import jobs_to_settle, start_settling
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from training_gym.spec.defaults import OF_FEW
from training_gym.spec.methods import METHODS
from zoo_protocol.messages import struct_hash


def test_quote_names_cost_and_writes_nothing(services: Services, payer: Caller, body: Body) -> None:
    quote = payer.post("/v1/quotes", json=body).json()
    assert quote["units"] == 8
    assert quote["spec"]["training_config"]["muon_learning_rate"] == 0.04  # defaults are filled in
    assert int(quote["cost_at_reserve_wei"]) == 8 * int(quote["unit_price_at_reserve_wei"])
    assert int(quote["cost_at_max_price_wei"]) <= int(body["budget_max"])
    assert quote["detection_probability"] == pytest.approx(0.25)
    assert (quote["sampling_bps"], quote["least_detection_probability"]) == (200, pytest.approx(0.02))
    assert quote["settings_by_size"] == {key: OF_FEW[key] for key in OF_FEW if key != "inner_steps"}  # the request's
    expected = quote["expected_throughput"]
    assert expected["compute_seconds"] == pytest.approx(quote["expected_seconds"] / 2, abs=1e-3)  # two rounds
    assert expected["share_of_ideal"] == pytest.approx(
        expected["compute_seconds"] / expected["round_seconds"], abs=1e-2
    )
    assert [expected[name] for name in ("down_mbps", "up_mbps", "round_trip_seconds", "nodes")] == [100, 20, 0.08, 4]
    assert (quote["gpus"], quote["gpus_in_use"]) == (4, 1)
    assert [point["code"] for point in quote["advice"]] == [
        "too_few_nodes",
        "idle_gpus",
        "small_batches",
        "many_epochs",
    ]
    assert 0 < quote["unit_memory_bytes"] <= quote["node_memory_bytes"] == 10**9
    assert (quote["balance_wei"], quote["deposit_needed_wei"]) == (str(100 * ZEN), "0")
    assert written(services) == [0, 0, 0, 0]


def test_quote_of_all_gpus_costs_quarter(payer: Caller, body: Body) -> None:
    quote = payer.post("/v1/quotes", json=body).json()
    body["training_config"]["gradient_shards"] = 4
    faster = payer.post("/v1/quotes", json=body).json()
    assert (faster["gpus"], faster["gpus_in_use"]) == (4, 4)
    assert faster["unit_weight_us"] == pytest.approx(quote["unit_weight_us"] / 4, abs=1)
    assert faster["expected_seconds"] == pytest.approx(quote["expected_seconds"] / 4, abs=1e-3)
    assert int(faster["cost_at_reserve_wei"]) == pytest.approx(int(quote["cost_at_reserve_wei"]) / 4, rel=1e-6)
    codes = [point["code"] for point in faster["advice"]]
    assert codes == [
        "too_few_nodes",
        "small_batches",
        "many_epochs",
        "low_throughput",
    ]  # round trips take longer than training


def test_quote_without_trade_names_sufficient_values(payer: Caller, body: Body) -> None:
    needed = int(payer.post("/v1/quotes", json=body).json()["cost_at_reserve_wei"])
    short = {"max_price": str(ZEN), "budget_max": str(needed - 1)}
    quote = payer.post("/v1/quotes", json=body | short).json()
    advice = {point["code"]: point for point in quote["advice"]}
    assert advice["price_below_reserve"]["remedy"].startswith("Set max_price to at least 2.5,")
    assert advice["budget_too_small"]["remedy"].startswith(f"Set budget_max to at least {format_zen(needed)},")
    assert "it takes 4 nodes, and 0 of tier bronze are active" in advice["too_few_nodes"]["detail"]


def test_job_keeps_name_in_lists_and_clones(payer: Caller, body: Body) -> None:
    body["name"] = "moon-1"
    job = payer.post("/v1/jobs", json=sign_job(payer, body)).json()
    (listed,) = payer.get("/v1/jobs").json()["jobs"]
    assert (job["name"], listed["name"]) == ("moon-1", "moon-1")
    again = payer.post(f"/v1/jobs/{job['id']}/clone", json={}).json()
    assert again["request"]["name"] == "moon-1"
    refused = payer.post("/v1/quotes", json=body | {"name": "0xMoon"})
    assert (refused.status_code, refused.json()["field"]) == (422, "name")


@pytest.mark.parametrize(
    ("asked", "attested", "stated", "least"),
    [(2_500, False, 0.25, 0.25), (300, True, 0.125, 0.03), (None, True, 0.125, 0.02)],
)
def test_own_sampling_rate_is_quoted_signed_and_stored(
    payer: Caller, body: Body, asked: int | None, attested: bool, stated: float, least: float
) -> None:
    body |= {"requirements": {"attested_only": attested}} | ({} if asked is None else {"sampling_bps": asked})
    quote = payer.post("/v1/quotes", json=body).json()
    assert (quote["detection_probability"], quote["least_detection_probability"]) == pytest.approx((stated, least))
    assert quote["order"]["message"]["samplingBps"] == str(asked or 200)
    signed = sign_job(payer, body)
    lowered = payer.post("/v1/jobs", json=signed | {"sampling_bps": 201})
    assert (lowered.status_code, lowered.json()["field"]) == (422, "order_signature")
    job = payer.post("/v1/jobs", json=signed).json()
    assert job["sampling_bps"] == (asked or 200)
    again = payer.post(f"/v1/jobs/{job['id']}/clone", json={}).json()
    assert (again["request"]["sampling_bps"], again["quote"]["sampling_bps"]) == (asked or 200, asked or 200)


def test_large_model_is_stored_with_size_dependent_settings(payer: Caller, body: Body) -> None:
    body["model_config"] = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "sequence_length": 8}
    body["training_config"] = {"rounds": 8, "batch_size": 1, "optimizer": "adamw", "value_bits": 4}
    body |= {"budget_max": str(100 * ZEN), "requirements": {"min_gpu_memory_gb": 8}}
    quote = payer.post("/v1/quotes", json=body).json()
    decided = {key: value for key, value in METHODS["slow_links"].items() if key != "value_bits"}
    decided |= {"learning_rate": 1e-3}
    assert quote["settings_by_size"] == decided
    assert quote["spec"]["training_config"].items() >= (decided | {"value_bits": 4}).items()
    assert "few_rounds" in [point["code"] for point in quote["advice"]]
    job = accepted(payer.post("/v1/jobs", json=sign_job(payer, body)), 201)
    assert (job["spec"], job["spec_hash"]) == (quote["spec"], quote["spec_hash"])
    # Asked for by what is stored, nothing is left to decide.
    again = payer.post("/v1/quotes", json=body | job["spec"]).json()
    assert (again["settings_by_size"], again["spec_hash"]) == ({}, job["spec_hash"])


def test_units_evaluate_by_default(payer: Caller, body: Body) -> None:
    body["training_config"] = {"rounds": 2, "segment_steps": 5, "optimizer": "adamw"}
    quote = payer.post("/v1/quotes", json=body).json()
    assert quote["validation_samples"] == quote["spec"]["data_config"]["validation_samples"] == 19  # 2 % of 320 * 3
    job = accepted(payer.post("/v1/jobs", json=sign_job(payer, body)), 201)
    assert job["spec_hash"] == quote["spec_hash"]

    body["data_config"] = body["data_config"] | {"validation_samples": 0}
    without = payer.post("/v1/quotes", json=body).json()
    assert without["validation_samples"] == 0
    assert 0.98 < without["unit_weight_us"] / quote["unit_weight_us"] < 1
    job = accepted(payer.post("/v1/jobs", json=sign_job(payer, body)), 201)
    assert job["spec"]["data_config"].keys() == {"dataset", "replicas"}
    again = payer.post(f"/v1/jobs/{job['id']}/clone", json={}).json()
    assert (again["quote"]["spec_hash"], again["quote"]["validation_samples"]) == (without["spec_hash"], 0)


def test_signed_quote_creates_job_and_deposit(api: httpx.Client, services: Services, payer: Caller, body: Body) -> None:
    submission_body = sign_job(payer, body)
    job = accepted(payer.post("/v1/jobs", json=submission_body), 201)
    assert (job["status"], job["budget_wei"], job["nonce"]) == ("submitted", str(ZEN), submission_body["nonce"])
    with services.database.transaction() as session:
        intent = session.scalars(select(TxIntent)).one()
        order = get(session, job["id"]).order
    assert struct_hash(order) == job["id"]
    assert (intent.key, intent.kind, intent.function) == (f"open:{job['id']}", "open_job", "openJob")
    arguments = intent.arguments
    assert arguments[0]["nonce"] == submission_body["nonce"]  # type: ignore[index,call-overload]
    assert str(arguments[1])[-2:] in ("1b", "1c")
    encode_call("JobEscrow", "openJob", arguments)
    assert services.part(Storage).get(job["spec_cid"], max_bytes=10_000)

    assert payer.get(f"/v1/jobs/{job['id']}").json() == job
    assert payer.get("/v1/jobs").json() == {"jobs": [job], "next": None}
    assert payer.get(f"/v1/jobs/{job['id']}/units").json() == []
    assert payer.get(f"/v1/jobs/{job['id']}/checkpoints").json() == []
    reason = payer.get(f"/v1/jobs/{job['id']}/why").json()
    assert [finding["code"] for finding in reason["findings"]] == ["deposit_pending"]
    outsider = sign_in(api)
    assert outsider.get(f"/v1/jobs/{job['id']}/why").json()["code"] == "job-not-found"
    assert outsider.get(f"/v1/jobs/{job['id']}").json()["code"] == "job-not-found"
    assert outsider.post(f"/v1/jobs/{job['id']}/cancel").status_code == 404


def test_allowed_regions_are_stored_with_job(services: Services, payer: Caller, body: Body) -> None:
    wishes = {"regions": ["eu-west", "eu-north"], "excluded_regions": ["eu-north"]}
    submission_body = sign_job(payer, {**body, "requirements": wishes})
    job_id = payer.post("/v1/jobs", json=submission_body).json()["id"]
    with services.database.transaction() as session:
        job = session.get(Job, job_id)
        assert job is not None
        accepted = Requirements.of(job.requirements)
        assert [accepted.allows_region(zone) for zone in ("eu-west", "eu-north", "us")] == [True, False, False]


def test_retry_returns_first_answer_and_replay_is_refused(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    submission_body = sign_job(payer, body)
    headers = {**payer.headers, "Idempotency-Key": "once"}
    first = api.post("/v1/jobs", json=submission_body, headers=headers)
    again = api.post("/v1/jobs", json=submission_body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    replay = payer.post("/v1/jobs", json=submission_body)
    assert (replay.status_code, replay.json()["code"], replay.json()["field"]) == (409, "nonce-replayed", "nonce")
    other = api.post("/v1/jobs", json={**submission_body, "nodes": 3}, headers=headers)
    assert other.json()["code"] == "idempotency-key-reused"
    assert written(services) == [1, 1, 1, 1]


def test_final_deposit_lists_job_and_reverted_one_rejects(services: Services, payer: Caller, body: Body) -> None:
    funded, reverted = (payer.post("/v1/jobs", json=sign_job(payer, body)).json()["id"] for _ in range(2))
    with services.database.transaction() as session:
        order = get(session, funded).order
        intents = {intent.subject: intent for intent in session.scalars(select(TxIntent))}
    for intent in intents.values():
        intent.status = IntentStatus.REVERTED
    intents[funded].detail = f"JobExists(jobId={funded})"  # another account relayed it first; its event follows
    intents[reverted].detail = "InsufficientBalance(payer=0x, needed=1, available=0)"
    for _ in range(2):
        with services.database.transaction() as session:
            submission.on_open_intent(session, intents[funded])
            submission.on_open_intent(session, intents[reverted])
            submission.on_job_opened(session, opened(order))
            submission.on_job_opened(session, opened(replace(order, nonce=1)))  # not a job of this market
    job = payer.get(f"/v1/jobs/{funded}").json()
    assert (job["status"], job["escrowed_wei"], job["fee_bps"]) == ("matching", str(ZEN), 500)
    job = payer.get(f"/v1/jobs/{reverted}").json()
    assert (job["status"], job["reason"]) == ("rejected", "insufficient_balance")


def test_job_cancelled_before_deposit_is_refunded_when_final(services: Services, payer: Caller, body: Body) -> None:
    job = payer.post("/v1/jobs", json=sign_job(payer, body)).json()
    path = f"/v1/jobs/{job['id']}"
    asked = payer.post(f"{path}/cancel").json()
    assert (asked["status"], asked["cancel_requested"]) == ("submitted", True)
    with services.database.transaction() as session:
        submission.on_job_opened(session, opened(get(session, job["id"]).order))
    cancelled = payer.get(path).json()
    assert (cancelled["status"], cancelled["reason"]) == ("cancelled", "cancelled_by_payer")
    assert cancelled["escrowed_wei"] == str(ZEN)  # the settlement that follows refunds it


def test_rejected_order_relayed_later_is_refunded(services: Services, payer: Caller, body: Body) -> None:
    """A reverted order is public with its signatures and valid once the payer has the budget."""
    job = payer.post("/v1/jobs", json=sign_job(payer, body)).json()
    with services.database.transaction() as session:
        (intent,) = session.scalars(select(TxIntent))
        intent.status, intent.detail = IntentStatus.REVERTED, "InsufficientBalance(payer=0x, needed=1, available=0)"
        submission.on_open_intent(session, intent)
    for _ in range(2):
        with services.database.transaction() as session:
            submission.on_job_opened(session, opened(get(session, job["id"]).order))
    relayed = payer.get(f"/v1/jobs/{job['id']}").json()
    assert (relayed["status"], relayed["reason"]) == ("cancelled", "deposit_after_rejection")
    assert relayed["escrowed_wei"] == str(ZEN)  # as above
    with services.database.transaction() as session:
        start_settling(session)
        assert jobs_to_settle(session) == [job["id"]]


def test_jobs_are_paged_and_filtered(payer: Caller, body: Body) -> None:
    made = [payer.post("/v1/jobs", json=sign_job(payer, body)).json()["id"] for _ in range(3)]
    first = payer.get("/v1/jobs", params={"limit": 2}).json()
    rest = payer.get("/v1/jobs", params={"limit": 2, "after": first["next"]}).json()
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == made[::-1]
    assert rest["next"] is None
    for query, ids in (
        ({"status": ["submitted", "matching"]}, made),
        ({"status": "matching"}, []),
        ({"tier": "gold"}, []),
    ):
        found = payer.get("/v1/jobs", params=query).json()["jobs"]
        assert {job["id"] for job in found} == set(ids)
    assert payer.get("/v1/jobs", params={"tier": "tin"}).json()["code"] == "unknown-tier"
    assert payer.get("/v1/jobs", params={"after": "0x12"}).json()["code"] == "invalid-request"
