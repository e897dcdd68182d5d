"""The hardware benchmark over HTTP: order of steps, wrong and late answers, waits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI
from kit.api import provider_calls as calls
from kit.api.clients import refusal, sign_in

from market.domain.network import DEVNET
from market.platform.db.session import Database
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.providers.benchmarks import service as benchmarks
from market.providers.models import BenchmarkRun, Provider
from market.providers.record import reliability
from zoo_protocol.content.unixfs import cid_of_file


def test_wrong_slow_late_or_foreign_answer_fails(api: httpx.Client, database: Database, services: Services) -> None:
    node, other = sign_in(api), sign_in(api)
    calls.register(node)
    run = calls.start_benchmark(node)
    right = calls.commit_benchmark(node, run)
    refusal(calls.answer_benchmark(other, run, right), 404, "benchmark-not-found")
    path = f"/v1/benchmarks/{run['id']}/answer"
    for cid in (
        "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
        cid_of_file(right),
    ):  # the other's upload
        refusal(node.post(path, json={"cid": cid}), 422, "answer-not-found")
    wrong = bytearray(right)
    wrong[-1] = (wrong[-1] + 1) % 61
    answer = calls.answer_benchmark(node, run, bytes(wrong)).json()
    assert (answer["passed"], answer["reason"], answer["tier"]) == (False, "wrong_answer", "bronze")
    refusal(calls.answer_benchmark(node, run, right), 409, "benchmark-answered")

    for content in (right, right + b"x", b""):
        run = calls.start_benchmark(node)
        calls.commit_benchmark(node, run)
        assert calls.answer_benchmark(node, run, content).json()["reason"] == "wrong_answer"

    for column, reason in (("started_at", "too_slow"), ("committed_at", "too_late")):
        run = calls.start_benchmark(node)
        right = calls.commit_benchmark(node, run)
        with database.transaction() as session:
            row = session.get_one(BenchmarkRun, run["id"])
            setattr(row, column, datetime.now(UTC) - timedelta(days=1))
            row.deadline_at = datetime.now(UTC) - timedelta(days=1 if column == "started_at" else -1)
        assert calls.answer_benchmark(node, run, right).json()["reason"] == reason


def test_proof_sized_answer_is_kept_until_checked(api: httpx.Client, services: Services, app: FastAPI) -> None:
    """On the main network it has up to 812 MB, more than one account may upload at once."""
    limits = {"max_blob_bytes": 1_000, "blob_bytes_per_day": 100_000}
    app.state.services = replace(services, settings=services.settings.model_copy(update=limits))
    node = calls.registered(api)
    refusal(node.post("/v1/blobs", content=bytes(2_000)), 413, "body-too-large")
    run = calls.start_benchmark(node)
    right = calls.commit_benchmark(node, run)
    assert len(right) > 1_000_000
    answer = calls.answer_benchmark(node, run, right).json()
    assert answer["passed"]
    measured = node.get(f"/v1/providers/{node.address}").json()["measured_mflops"]
    assert measured == answer["mflops"] > 0
    assert not services.part(Storage).is_pinned(cid_of_file(right))
    again = {"cid": cid_of_file(right)}
    assert node.post(f"/v1/benchmarks/{run['id']}/answer", json=again).json() == answer
    refusal(node.post("/v1/blobs", content=bytes(2_000)), 413, "body-too-large")


def test_answers_are_checked_one_by_one(api: httpx.Client) -> None:
    node = calls.registered(api)
    run = calls.start_benchmark(node)
    right = calls.commit_benchmark(node, run)
    with benchmarks._CHECKS:
        refusal(calls.answer_benchmark(node, run, right), 503, "benchmark-busy")
    assert calls.answer_benchmark(node, run, right).json()["passed"]


def test_benchmark_steps_are_ordered(api: httpx.Client, database: Database) -> None:
    node = calls.registered(api)
    run, commitment = calls.start_benchmark(node), {"commitment": "0x" + "ab" * 32}
    path = f"/v1/benchmarks/{run['id']}"
    refusal(node.post(f"{path}/commit", json=commitment), 409, "benchmark-out-of-turn")
    refusal(calls.answer_benchmark(node, run, b"x"), 409, "benchmark-out-of-turn")
    first = node.post(f"{path}/ready", json={}).json()
    assert node.post(f"{path}/ready", json={}).json() == first  # no new nonce, no more time
    assert node.post(f"{path}/commit", json=commitment).status_code == 200
    other = {"commitment": "0x" + "cd" * 32}
    refusal(node.post(f"{path}/commit", json=other), 409, "benchmark-out-of-turn")
    late = calls.start_benchmark(node)
    with database.transaction() as session:
        session.get_one(BenchmarkRun, late["id"]).deadline_at = datetime.now(UTC) - timedelta(seconds=1)
    answer = node.post(f"/v1/benchmarks/{late['id']}/ready", json={})
    refusal(answer, 409, "benchmark-out-of-turn")


def test_node_waits_after_leaving_challenge_unanswered(api: httpx.Client, services: Services, app: FastAPI) -> None:
    """Otherwise a node could commit to many challenges and answer the easiest one."""
    app.state.services = replace(services, network=replace(services.network, benchmark_pause_seconds=3600))
    node = calls.registered(api)
    first, second = calls.start_benchmark(node), calls.start_benchmark(node)
    right = calls.commit_benchmark(node, first)
    path = f"/v1/benchmarks/{second['id']}"
    node.post(f"{path}/ready", json={})
    commitment = {"commitment": "0x" + "ab" * 32}
    refusal(node.post(f"{path}/commit", json=commitment), 409, "benchmark-paused")
    answer = node.post("/v1/benchmarks", json={"tier": "bronze"})
    assert "not_before" in refusal(answer, 409, "benchmark-paused")
    assert calls.answer_benchmark(node, first, right).json()["passed"]
    calls.start_benchmark(node)


@pytest.mark.parametrize("least", ["too_late", "link_too_slow"])
def test_node_without_answer_gains_nothing_by_delay(
    api: httpx.Client, database: Database, services: Services, app: FastAPI, least: str
) -> None:
    """A late answer costs no pause, so an empty late one must not buy another try."""
    proof = replace(calls.BRONZE.benchmark, min_mflops=1, min_upload_mbps=1_000 if least == "link_too_slow" else 0)
    tiers = tuple(replace(tier, benchmark=proof) for tier in DEVNET.tiers)
    app.state.services = replace(services, network=replace(DEVNET, tiers=tiers, benchmark_pause_seconds=3600))
    node = calls.registered(api)
    run = calls.start_benchmark(node)
    calls.commit_benchmark(node, run)
    if least == "too_late":
        with database.transaction() as session:
            row = session.get_one(BenchmarkRun, run["id"])
            row.committed_at = datetime.now(UTC) - timedelta(seconds=proof.answer_seconds + 1)
    assert calls.answer_benchmark(node, run, b"").json()["reason"] == "wrong_answer"
    answer = node.post("/v1/benchmarks", json={"tier": "bronze"})
    refusal(answer, 409, "benchmark-paused")


def test_late_commitment_may_retry_without_answer(
    api: httpx.Client, database: Database, services: Services, app: FastAPI
) -> None:
    app.state.services = replace(services, network=replace(DEVNET, benchmark_pause_seconds=3600))
    node = calls.registered(api)
    run = calls.start_benchmark(node)
    node.post(f"/v1/benchmarks/{run['id']}/ready", json={})
    with database.transaction() as session:
        session.get_one(BenchmarkRun, run["id"]).deadline_at = datetime.now(UTC) - timedelta(seconds=1)
    body = {"commitment": "0x" + "ab" * 32}
    answer = node.post(f"/v1/benchmarks/{run['id']}/commit", json=body).json()
    assert not answer["in_time"]
    calls.start_benchmark(node)


def test_benchmark_repeats_at_secret_time(api: httpx.Client, database: Database, services: Services) -> None:
    node = calls.registered(api)
    calls.pass_benchmark(node)

    def due() -> str | None:
        found: str | None = calls.beat(node, services.domain)["benchmark_by"]
        return found

    def draw(**values: datetime | None) -> None:
        with database.transaction() as session:
            for name, value in values.items():
                setattr(session.get_one(Provider, node.address), name, value)

    now = datetime.now(UTC)
    assert due() is None
    draw(rebenchmark_at=now)
    token_only = node.post("/v1/leases/next", json={}).json()
    assert token_only["benchmark_by"] is None  # its clock does not start either
    deadline = due()
    assert deadline is not None
    assert due() == deadline  # asking again gives no more time
    benchmarks.demote_overdue(database, now)
    assert calls.status_of(api, node.address) == "benchmarked"
    calls.pass_benchmark(node)
    assert due() is None
    draw(rebenchmark_at=now)
    due()
    benchmarks.demote_overdue(database, now + timedelta(days=1))
    found = api.get(f"/v1/providers/{node.address}").json()
    assert (found["status"], found["reason"]) == ("demoted", "rebenchmark_missed")
    reliability.review(database, DEVNET, now)
    assert calls.status_of(api, node.address) == "demoted"  # however reliable it is otherwise
    calls.pass_benchmark(node)
    assert calls.status_of(api, node.address) == "benchmarked"


def test_benchmark_requires_registration_tier_and_hardware(api: httpx.Client) -> None:
    node = sign_in(api)
    tier = {"tier": "bronze"}
    refusal(node.post("/v1/benchmarks", json=tier), 409, "not-registered")
    calls.register(node, hardware=calls.HARDWARE | {"ram_gb": 0.5})
    refusal(node.post("/v1/benchmarks", json={"tier": "platinum"}), 422, "unknown-tier")
    problem = refusal(node.post("/v1/benchmarks", json=tier), 422, "hardware-insufficient")
    assert problem["field"] == "hardware.ram_gb"
