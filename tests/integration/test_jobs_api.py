"""Quotes and jobs over HTTP: what is accepted, and that every bad input is named and writes nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from api_support import Caller, sign_in
from eth_account import Account as Wallets
from fastapi import FastAPI
from jobs_world import SPEC, ZEN, FakeChain, opened, store_dataset
from sqlalchemy import func, select

from market.api.services import Services
from market.chain.contracts import encode_call
from market.chain.models import TxIntent
from market.domain.lifecycle import IntentStatus
from market.domain.placement import Requirements
from market.events.models import IdempotentRequest
from market.jobs import submission
from market.jobs.facts import get, start_settling
from market.jobs.models import Job
from market.jobs.payment import jobs_to_settle
from market.providers.models import SignerNonce
from market.storage.service import Storage
from training_gym.config import MAX_SEGMENTS, METHODS
from zoo_protocol.cid import cid_of_raw
from zoo_protocol.messages import struct_hash

Body = dict[str, Any]


@pytest.fixture
def chain() -> FakeChain:
    return FakeChain()


@pytest.fixture
def app(app: FastAPI, chain: FakeChain) -> FastAPI:
    app.state.services = replace(app.state.services, chain=chain)
    return app


@pytest.fixture
def payer(api: httpx.Client, chain: FakeChain) -> Caller:
    caller = sign_in(api)
    chain.balances[caller.address] = 100 * ZEN
    chain.permit_nonces[caller.address] = 3
    return caller


@pytest.fixture(scope="module")
def dataset(storage: Storage) -> str:
    return store_dataset(storage)


@pytest.fixture
def body(dataset: str) -> Body:
    """A job that is worth about 0.07 ZEN per unit at its highest price."""
    return {
        **SPEC,
        "training_config": {**SPEC["training_config"], "inner_steps": 1000, "segment_steps": 100, "batch_size": 64},
        "data_config": {"dataset": dataset},
        "tier": "bronze",
        "nodes": 4,
        "budget_max": str(ZEN),
        "max_price": str(3 * ZEN),
        "wait_until": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }


def _signed(api: httpx.Client, caller: Caller, body: Body) -> Body:
    """The submission of a quoted job, signed by an ordinary wallet from the quote's JSON alone."""
    answer = api.post("/v1/quotes", json=body, headers=caller.headers)
    assert answer.status_code == 200, answer.text
    quote = answer.json()
    return {
        **body,
        "nonce": quote["nonce"],
        "order_signature": _sign(caller, quote["order"]),
        "permit": {"deadline": quote["permit_deadline"], "signature": _sign(caller, quote["permit"])},
    }


def _sign(caller: Caller, document: Body) -> str:
    signed = Wallets.sign_typed_data(caller.wallet.key, full_message=document)
    return "0x" + bytes(signed.signature).hex()


def _written(services: Services) -> list[int]:
    with services.database.transaction() as session:
        tables = (Job, SignerNonce, TxIntent, IdempotentRequest)
        return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]


def test_a_quote_names_the_cost_and_writes_nothing(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    quote = api.post("/v1/quotes", json=body, headers=payer.headers).json()
    assert quote["units"] == 8
    assert quote["spec"]["training_config"]["outer_learning_rate"] == 0.9  # defaults are filled in
    assert int(quote["cost_at_reserve_wei"]) == 8 * int(quote["unit_price_at_reserve_wei"])
    assert int(quote["cost_at_max_price_wei"]) <= int(body["budget_max"])
    assert quote["detection_probability"] == pytest.approx(0.25)
    assert (quote["sampling_bps"], quote["least_detection_probability"]) == (200, pytest.approx(0.02))
    assert quote["settings_by_size"] == {}
    expected = quote["expected_throughput"]
    assert expected["compute_seconds"] == pytest.approx(quote["expected_seconds"] / 2, abs=1e-3)  # two rounds
    assert expected["share_of_ideal"] == pytest.approx(
        expected["compute_seconds"] / expected["round_seconds"], abs=1e-2
    )
    assert [expected[name] for name in ("down_mbps", "up_mbps", "round_trip_seconds", "nodes")] == [100, 20, 0.08, 4]
    assert [point["code"] for point in quote["advice"]] == ["low_throughput"]  # round trips take longer than training
    assert quote["permit"]["message"]["nonce"] == "3"
    assert quote["permit"]["message"]["value"] == body["budget_max"]
    assert _written(services) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("asked", "attested", "stated", "least"),
    [(2_500, False, 0.25, 0.25), (300, True, 0.125, 0.03), (None, True, 0.125, 0.02)],
)
def test_a_job_with_a_rate_of_its_own_is_quoted_signed_and_kept_with_it(
    api: httpx.Client, payer: Caller, body: Body, asked: int | None, attested: bool, stated: float, least: float
) -> None:
    body |= {"requirements": {"attested_only": attested}} | ({} if asked is None else {"sampling_bps": asked})
    quote = api.post("/v1/quotes", json=body, headers=payer.headers).json()
    assert (quote["detection_probability"], quote["least_detection_probability"]) == pytest.approx((stated, least))
    assert quote["order"]["message"]["samplingBps"] == str(asked or 200)
    signed = _signed(api, payer, body)
    lowered = api.post("/v1/jobs", json=signed | {"sampling_bps": 201}, headers=payer.headers)
    assert (lowered.status_code, lowered.json()["field"]) == (422, "order_signature")
    job = api.post("/v1/jobs", json=signed, headers=payer.headers).json()
    assert job["sampling_bps"] == (asked or 200)
    again = api.post(f"/v1/jobs/{job['id']}/clone", json={}, headers=payer.headers).json()
    assert (again["request"]["sampling_bps"], again["quote"]["sampling_bps"]) == (asked or 200, asked or 200)


def test_a_large_model_is_quoted_and_stored_with_the_settings_that_its_size_decided(
    api: httpx.Client, payer: Caller, body: Body
) -> None:
    body["model_config"] = {"hidden_size": 1024, "num_layers": 8, "num_heads": 8, "sequence_length": 8}
    body["training_config"] = {"rounds": 8, "batch_size": 1, "optimizer": "adamw", "value_bits": 4}
    body |= {"budget_max": str(100 * ZEN)}
    quote = api.post("/v1/quotes", json=body, headers=payer.headers).json()
    decided = {key: value for key, value in METHODS["slow_links"].items() if key != "value_bits"}
    decided |= {"learning_rate": 1e-3}
    assert quote["settings_by_size"] == decided
    assert quote["spec"]["training_config"].items() >= (decided | {"value_bits": 4}).items()
    assert "few_rounds" in [point["code"] for point in quote["advice"]]
    answer = api.post("/v1/jobs", json=_signed(api, payer, body), headers=payer.headers)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["spec"], job["spec_hash"]) == (quote["spec"], quote["spec_hash"])
    # Asked for by what is stored, nothing is left to decide.
    again = api.post("/v1/quotes", json=body | job["spec"], headers=payer.headers).json()
    assert (again["settings_by_size"], again["spec_hash"]) == ({}, job["spec_hash"])


def test_a_signed_quote_becomes_a_job_and_a_deposit(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    submission_body = _signed(api, payer, body)
    answer = api.post("/v1/jobs", json=submission_body, headers=payer.headers)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["status"], job["budget_wei"], job["nonce"]) == ("submitted", str(ZEN), submission_body["nonce"])
    with services.database.transaction() as session:
        intent = session.scalars(select(TxIntent)).one()
        order = get(session, job["id"]).order
    assert struct_hash(order) == job["id"]
    assert (intent.key, intent.kind, intent.function) == (f"open:{job['id']}", "open_job", "openJob")
    arguments = intent.arguments
    assert arguments[0]["nonce"] == submission_body["nonce"]  # type: ignore[index,call-overload]
    assert arguments[3] in ("27", "28")
    encode_call("JobEscrow", "openJob", arguments)
    assert services.storage.get(job["spec_cid"], max_bytes=10_000)

    assert api.get(f"/v1/jobs/{job['id']}", headers=payer.headers).json() == job
    assert api.get("/v1/jobs", headers=payer.headers).json() == {"jobs": [job], "next": None}
    assert api.get(f"/v1/jobs/{job['id']}/units", headers=payer.headers).json() == []
    assert api.get(f"/v1/jobs/{job['id']}/checkpoints", headers=payer.headers).json() == []
    reason = api.get(f"/v1/jobs/{job['id']}/why", headers=payer.headers).json()
    assert [finding["code"] for finding in reason["findings"]] == ["deposit_pending"]
    stranger = sign_in(api)
    assert api.get(f"/v1/jobs/{job['id']}/why", headers=stranger.headers).json()["code"] == "job-not-found"
    assert api.get(f"/v1/jobs/{job['id']}", headers=stranger.headers).json()["code"] == "job-not-found"
    assert api.post(f"/v1/jobs/{job['id']}/cancel", headers=stranger.headers).status_code == 404


def test_where_a_job_may_run_is_kept_with_it(api: httpx.Client, services: Services, payer: Caller, body: Body) -> None:
    wishes = {"regions": ["eu-west", "eu-north"], "excluded_regions": ["eu-north"]}
    submission_body = _signed(api, payer, {**body, "requirements": wishes})
    job_id = api.post("/v1/jobs", json=submission_body, headers=payer.headers).json()["id"]
    with services.database.transaction() as session:
        job = session.get(Job, job_id)
        assert job is not None
        accepted = Requirements.of(job.requirements)
        assert [accepted.allows_region(zone) for zone in ("eu-west", "eu-north", "us")] == [True, False, False]


def test_a_retry_gets_the_first_answer_and_a_replay_is_refused(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    submission_body = _signed(api, payer, body)
    headers = {**payer.headers, "Idempotency-Key": "once"}
    first = api.post("/v1/jobs", json=submission_body, headers=headers)
    again = api.post("/v1/jobs", json=submission_body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    replay = api.post("/v1/jobs", json=submission_body, headers=payer.headers)
    assert (replay.status_code, replay.json()["code"], replay.json()["field"]) == (409, "nonce-replayed", "nonce")
    other = api.post("/v1/jobs", json={**submission_body, "nodes": 3}, headers=headers)
    assert other.json()["code"] == "idempotency-key-reused"
    assert _written(services) == [1, 1, 1, 1]


def _set(path: str, value: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        *sections, key = path.split(".")
        for section in sections:
            body = body[section]
        body[key] = value

    return change


FOREIGN = "0x" + "11" * 64 + "1b"
"""A well-formed signature of nobody in particular."""


def test_a_dataset_whose_manifest_has_a_key_that_is_no_text_is_refused(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    """Half a surrogate pair can be written in JSON, and encoded by nobody."""
    manifest = b'{"\\ud800":1,"kind":"zoo-dataset/1","tokenizer":"bytes","train":{},"validation":{}}'
    dataset = services.storage.put(manifest, max_bytes=1000).cid
    answer = api.post("/v1/quotes", json=body | {"data_config": {"dataset": dataset}}, headers=payer.headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-dataset")
    assert "\\ud800" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        (_set("budget_max", "10000"), "budget-below-one-unit", "budget_max"),
        (_set("tier", "platinum"), "unknown-tier", "tier"),
        (_set("budget_max", "-5"), "invalid-request", "budget_max"),
        (_set("max_price", "2.5"), "invalid-request", "max_price"),
        (_set("max_price", 5), "invalid-request", "max_price"),
        (_set("max_price", "1"), "invalid-order", "max_price"),
        (_set("budget_max", str(2**96)), "invalid-order", "budget_max"),
        (_set("wait_until", "2020-01-01T00:00:00Z"), "invalid-order", "wait_until"),
        (_set("wait_until", "tomorrow"), "invalid-request", "wait_until"),
        (_set("nodes", 0), "invalid-request", "nodes"),
        (_set("training_config.inner_stepz", 3), "invalid-spec", "training_config.inner_stepz"),
        (_set("training_config.rounds", 5000), "invalid-order", "training_config.rounds"),
        (_set("training_config.segment_steps", 10), "invalid-spec", "training_config.segment_steps"),  # 100 segments
        (_set("training_config.method", "ddp"), "invalid-spec", "training_config.averaging"),
        (_set("training_config.powersgd_rank", 1), "invalid-spec", "training_config.powersgd_rank"),
        (_set("learning_rate", 1), "invalid-request", "learning_rate"),
        (_set("requirements", {"region": "eu"}), "invalid-request", "requirements.region"),
        (_set("requirements", {"regions": ["EU west"]}), "invalid-request", "requirements.regions.0"),
        (_set("requirements", {"regions": ["eu"], "excluded_regions": ["eu"]}), "invalid-request", "requirements"),
        (_set("requirements", {"environment_classes": ["x"]}), "invalid-request", "requirements.environment_classes.0"),
        (_set("requirements", {"min_gpu_memory_gb": -1}), "invalid-request", "requirements.min_gpu_memory_gb"),
        (_set("requirements", {"min_reliability_bps": 10_001}), "invalid-request", "requirements.min_reliability_bps"),
        (_set("sampling_bps", 199), "invalid-order", "sampling_bps"),
        (_set("sampling_bps", 2_501), "invalid-order", "sampling_bps"),
        (_set("sampling_bps", 0), "invalid-request", "sampling_bps"),
        (_set("requirements", {"attested": True}), "invalid-request", "requirements.attested"),
        (_set("data_config.dataset", cid_of_raw(b"nowhere")), "dataset-not-found", "data_config.dataset"),
    ],
)
def test_bad_jobs_are_refused_by_quote_and_submission_alike(
    api: httpx.Client,
    services: Services,
    payer: Caller,
    body: Body,
    change: Callable[[Body], None],
    code: str,
    field: str,
) -> None:
    submission_body = _signed(api, payer, body)
    for path, document in (("/v1/quotes", body), ("/v1/jobs", submission_body)):
        document = {**document, "training_config": dict(document["training_config"])}
        document["data_config"] = dict(document["data_config"])
        change(document)
        answer = api.post(path, json=document, headers={**payer.headers, "Idempotency-Key": path})
        problem = answer.json()
        # A spoiled submission is no longer what was signed, which may be noticed before the field is.
        if path == "/v1/quotes" or problem["code"] != "invalid-signature":
            assert (problem["code"], problem["field"]) == (code, field), problem
        assert 400 <= answer.status_code < 500
        assert problem["remedy"]
    assert _written(services) == [0, 0, 0, 0]


def test_an_unknown_key_names_its_nearest(api: httpx.Client, payer: Caller, body: Body) -> None:
    body["training_config"] = {**body["training_config"], "batchsize": 4}
    detail = api.post("/v1/quotes", json=body, headers=payer.headers).json()["detail"]
    assert "'batch_size'" in detail


@pytest.mark.parametrize(
    ("spoil", "code", "field"),
    [
        ({"order_signature": "0x1234"}, "invalid-signature", "order_signature"),
        ({"order_signature": "0x" + "00" * 65}, "invalid-signature", "order_signature"),
        ({"order_signature": "junk"}, "invalid-request", "order_signature"),
        ({"order_signature": FOREIGN}, "invalid-signature", "order_signature"),
        ({"nonce": "7"}, "invalid-signature", "order_signature"),
        ({"nodes": 5}, "invalid-signature", "order_signature"),
        ({"budget_max": str(2 * ZEN)}, "invalid-signature", "order_signature"),
        ({"permit": {"deadline": 2**40, "signature": FOREIGN}}, "invalid-signature", "permit.signature"),
        ({"permit": {"deadline": 1, "signature": FOREIGN}}, "permit-too-short", "permit.deadline"),
    ],
)
def test_signatures_must_be_the_callers_over_exactly_this_job(
    api: httpx.Client, services: Services, payer: Caller, body: Body, spoil: Body, code: str, field: str
) -> None:
    answer = api.post("/v1/jobs", json={**_signed(api, payer, body), **spoil}, headers=payer.headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (422, code, field), problem
    assert _written(services) == [0, 0, 0, 0]


def test_an_order_of_more_segments_than_a_dispute_can_show_is_refused_whoever_signed_it(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    most = {**body["training_config"], "inner_steps": MAX_SEGMENTS * 10, "segment_steps": 10}
    job = {**body, "training_config": most}
    submission_body = _signed(api, payer, job)
    quote = api.post("/v1/quotes", json=job, headers=payer.headers).json()
    assert quote["order"]["message"]["segments"] == str(MAX_SEGMENTS)
    order = {**quote["order"]["message"], "segments": str(MAX_SEGMENTS + 1), "nonce": submission_body["nonce"]}
    finer = {**job, "training_config": {**most, "inner_steps": (MAX_SEGMENTS + 1) * 10}}
    signature = _sign(payer, {**quote["order"], "message": order})
    for refused, code in ((finer, "invalid-spec"), (job, "invalid-signature")):  # in the open, and under a smaller spec
        asked = {**submission_body, **refused, "order_signature": signature}
        assert api.post("/v1/jobs", json=asked, headers=payer.headers).json()["code"] == code
    assert _written(services) == [0, 0, 0, 0]
    assert api.post("/v1/jobs", json=submission_body, headers=payer.headers).status_code == 201


def test_a_budget_beyond_the_balance_is_quoted_and_refused(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    submission_body = _signed(api, payer, {**body, "budget_max": str(101 * ZEN)})
    problem = api.post("/v1/jobs", json=submission_body, headers=payer.headers).json()
    assert (problem["code"], problem["field"]) == ("insufficient-balance", "budget_max")
    assert _written(services) == [0, 0, 0, 0]


def test_a_permit_over_another_value_or_nonce_is_refused(
    api: httpx.Client, services: Services, payer: Caller, body: Body, chain: FakeChain
) -> None:
    submission_body = _signed(api, payer, body)
    quote = api.post("/v1/quotes", json=body, headers=payer.headers).json()
    quote["permit"]["message"]["value"] = "1"
    small = {"deadline": quote["permit_deadline"], "signature": _sign(payer, quote["permit"])}
    answer = api.post("/v1/jobs", json={**submission_body, "permit": small}, headers=payer.headers)
    assert (answer.json()["code"], answer.json()["field"]) == ("invalid-signature", "permit.signature")
    chain.permit_nonces[payer.address] += 1  # the permit was used meanwhile
    answer = api.post("/v1/jobs", json=submission_body, headers=payer.headers)
    assert (answer.json()["code"], answer.json()["field"]) == ("invalid-signature", "permit.signature")
    assert _written(services) == [0, 0, 0, 0]


def test_a_final_deposit_lists_the_job_once_and_a_reverted_one_rejects_it(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    funded, reverted = (
        api.post("/v1/jobs", json=_signed(api, payer, body), headers=payer.headers).json()["id"] for _ in range(2)
    )
    with services.database.transaction() as session:
        order = get(session, funded).order
        intents = {intent.subject: intent for intent in session.scalars(select(TxIntent))}
    for intent in intents.values():
        intent.status = IntentStatus.REVERTED
    intents[funded].detail = f"JobExists(jobId={funded})"  # somebody relayed it first; its event follows
    intents[reverted].detail = "ERC20InsufficientAllowance(spender=0x, allowance=0, needed=1)"
    for _ in range(2):
        with services.database.transaction() as session:
            submission.on_deposit_intent(session, intents[funded])
            submission.on_deposit_intent(session, intents[reverted])
            submission.on_job_opened(session, opened(order))
            submission.on_job_opened(session, opened(replace(order, nonce=1)))  # nobody's job here
    job = api.get(f"/v1/jobs/{funded}", headers=payer.headers).json()
    assert (job["status"], job["escrowed_wei"], job["fee_bps"]) == ("matching", str(ZEN), 500)
    job = api.get(f"/v1/jobs/{reverted}", headers=payer.headers).json()
    assert (job["status"], job["reason"]) == ("rejected", "permit_not_usable")


def test_a_job_cancelled_before_its_deposit_is_refunded_when_that_is_final(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    job = api.post("/v1/jobs", json=_signed(api, payer, body), headers=payer.headers).json()
    path = f"/v1/jobs/{job['id']}"
    asked = api.post(f"{path}/cancel", headers=payer.headers).json()
    assert (asked["status"], asked["cancel_requested"]) == ("submitted", True)
    with services.database.transaction() as session:
        submission.on_job_opened(session, opened(get(session, job["id"]).order))
    cancelled = api.get(path, headers=payer.headers).json()
    assert (cancelled["status"], cancelled["reason"]) == ("cancelled", "cancelled_by_payer")
    assert cancelled["escrowed_wei"] == str(ZEN)  # what the settlement, which comes next, refunds


def test_a_rejected_order_that_somebody_relays_later_is_refunded(
    api: httpx.Client, services: Services, payer: Caller, body: Body
) -> None:
    """What reverted on chain is public with its signatures, and works once the payer has the budget again."""
    job = api.post("/v1/jobs", json=_signed(api, payer, body), headers=payer.headers).json()
    with services.database.transaction() as session:
        (intent,) = session.scalars(select(TxIntent))
        intent.status, intent.detail = IntentStatus.REVERTED, "ERC20InsufficientBalance(sender=0x, balance=0, needed=1)"
        submission.on_deposit_intent(session, intent)
    for _ in range(2):
        with services.database.transaction() as session:
            submission.on_job_opened(session, opened(get(session, job["id"]).order))
    relayed = api.get(f"/v1/jobs/{job['id']}", headers=payer.headers).json()
    assert (relayed["status"], relayed["reason"]) == ("cancelled", "deposit_after_rejection")
    assert relayed["escrowed_wei"] == str(ZEN)  # as above
    with services.database.transaction() as session:
        start_settling(session)
        assert jobs_to_settle(session) == [job["id"]]


def test_pages_of_jobs(api: httpx.Client, payer: Caller, body: Body) -> None:
    made = [api.post("/v1/jobs", json=_signed(api, payer, body), headers=payer.headers).json()["id"] for _ in range(3)]
    first = api.get("/v1/jobs", params={"limit": 2}, headers=payer.headers).json()
    rest = api.get("/v1/jobs", params={"limit": 2, "after": first["next"]}, headers=payer.headers).json()
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == made[::-1]
    assert rest["next"] is None
    for query, ids in (
        ({"status": ["submitted", "matching"]}, made),
        ({"status": "matching"}, []),
        ({"tier": "gold"}, []),
    ):
        found = api.get("/v1/jobs", params=query, headers=payer.headers).json()["jobs"]
        assert {job["id"] for job in found} == set(ids)
    assert api.get("/v1/jobs", params={"tier": "tin"}, headers=payer.headers).json()["code"] == "unknown-tier"
    assert api.get("/v1/jobs", params={"after": "0x12"}, headers=payer.headers).json()["code"] == "invalid-request"
