"""A node's way into the book: registration, benchmark, stake, ask; and out of it."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import torch
from api_support import Caller, refusal, sign_in
from fastapi import FastAPI
from sqlalchemy import select

from market.api.services import Services
from market.chain.contracts import ChainEvent
from market.db.session import Database
from market.domain.network import DEVNET, ZEN
from market.events.models import AuditEvent
from market.providers import benchmarks, reviews, service
from market.providers.models import BenchmarkRun, Provider
from training_gym.hardware_proof import Work
from training_gym.prover import Prover
from zoo_protocol.attestation import COLLATERAL_FIELDS, Evidence, Verified
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import Ask, Domain, Heartbeat, sign, struct_hash, typed_data
from zoo_protocol.unixfs import cid_of_file

CLASS_A = "0x" + "aa" * 32
HARDWARE = {"gpu_model": "cpu", "gpu_count": 0, "gpu_memory_gb": 4, "ram_gb": 4, "network_gbps": 1}
BRONZE = DEVNET.tier("bronze")


def register(api: httpx.Client, caller: Caller, kind: str = "provider", **changes: object) -> httpx.Response:
    body = {"name": "n", "kind": kind, "region": "lab", "hardware": HARDWARE, "environment_class": CLASS_A}
    return api.post("/v1/providers", json=body | changes, headers=caller.headers)


def start_benchmark(api: httpx.Client, caller: Caller, tier: str = "bronze") -> dict[str, Any]:
    answer = api.post("/v1/benchmarks", json={"tier": tier}, headers=caller.headers)
    assert answer.status_code == 201, answer.text
    run: dict[str, Any] = answer.json()
    return run


def commit_benchmark(api: httpx.Client, caller: Caller, run: Mapping[str, Any]) -> bytes:
    """Do a challenge's work up to the commitment; the right answer."""
    prover = Prover(Work(**run["work"]), from_hex(run["seed"]), [torch.device("cpu")])
    path = f"/v1/benchmarks/{run['id']}"
    nonce = api.post(f"{path}/ready", json={}, headers=caller.headers).json()["nonce"]
    body = {"commitment": to_hex(prover.work(from_hex(nonce)))}
    answer = api.post(f"{path}/commit", json=body, headers=caller.headers)
    assert answer.status_code == 200, answer.text
    assert answer.json() == api.post(f"{path}/commit", json=body, headers=caller.headers).json()
    return prover.open(from_hex(answer.json()["secret"]))


def beat(api: httpx.Client, caller: Caller, domain: Domain) -> dict[str, Any]:
    """A heartbeat that answers the challenge which the one before it was told."""
    told = api.post("/v1/providers/me/heartbeat", json={}, headers=caller.headers).json()["challenge"]
    signature = sign(caller.wallet.key.hex(), typed_data(domain, Heartbeat(caller.address, told)))
    body = {"busy": True, "challenge": told, "signature": signature}
    said: dict[str, Any] = api.post("/v1/providers/me/heartbeat", json=body, headers=caller.headers).json()
    return said


def answer_benchmark(api: httpx.Client, caller: Caller, run: Mapping[str, Any], content: bytes) -> httpx.Response:
    cid = api.post("/v1/blobs", content=content, headers=caller.headers).json()["cid"]
    return api.post(f"/v1/benchmarks/{run['id']}/answer", json={"cid": cid}, headers=caller.headers)


def pass_benchmark(api: httpx.Client, caller: Caller, tier: str = "bronze") -> None:
    run = start_benchmark(api, caller, tier)
    assert answer_benchmark(api, caller, run, commit_benchmark(api, caller, run)).json()["passed"]


def chain_event(database: Database, name: str, address: str, **args: object) -> None:
    """Deliver one final event of the staking contract, as the indexer does."""
    event = ChainEvent("ProviderStaking", name, {"provider": address, **args}, "0x", 1, "0x", 0, int(time.time()))
    with database.transaction() as session:
        service.on_stake_changed(DEVNET, session, event)


def stake(database: Database, address: str, total: int) -> None:
    chain_event(database, "Staked", address, amount=total, total=total)


def ask_of(caller: Caller, **changes: object) -> Ask:
    until = int(time.time()) + 3600
    ask = Ask(caller.address, BRONZE.id, BRONZE.gpus, 2 * ZEN, until, secrets.randbits(200))
    return replace(ask, **changes)  # type: ignore[arg-type]


def ask_body(caller: Caller, domain: Domain, ask: Ask) -> dict[str, object]:
    signature = sign(caller.wallet.key.hex(), typed_data(domain, ask))
    return {"ask": asdict(ask) | {"minPrice": str(ask.minPrice), "nonce": str(ask.nonce)}, "signature": signature}


def place_ask(api: httpx.Client, caller: Caller, domain: Domain, ask: Ask) -> httpx.Response:
    return api.post("/v1/asks", json=ask_body(caller, domain, ask), headers=caller.headers)


def status_of(api: httpx.Client, address: str) -> str:
    return str(api.get(f"/v1/providers/{address}").json()["status"])


def offers(database: Database, timeout: float = 3600.0) -> list[str]:
    with database.transaction() as session:
        return [offer.provider for offer in service.open_offers(session, BRONZE.id, datetime.now(UTC), timeout)]


def test_a_node_comes_into_the_book_by_benchmark_stake_and_ask(
    api: httpx.Client, database: Database, services: Services
) -> None:
    node = sign_in(api)
    stake(database, node.address, BRONZE.minimum_stake_wei)  # a wallet may stake before it registers
    assert register(api, node).status_code == 201
    assert status_of(api, node.address) == "registered"
    refusal(place_ask(api, node, services.domain, ask_of(node)), 409, "tier-not-earned")

    pass_benchmark(api, node)
    assert status_of(api, node.address) == "active"
    ask = ask_of(node)
    placed = place_ask(api, node, services.domain, ask)
    assert placed.status_code == 201, placed.text
    assert placed.json()["id"] == struct_hash(ask)
    assert placed.json()["min_price_wei"] == str(2 * ZEN)
    assert offers(database) == [node.address]

    with database.transaction() as session:
        moves = session.scalars(
            select(AuditEvent.event).where(AuditEvent.subject_id == node.address).order_by(AuditEvent.id)
        )
        assert list(moves) == ["benchmark_passed", "stake_sufficient"]

    ask_path = f"/v1/asks/{placed.json()['id']}"
    refusal(api.delete(ask_path, headers=sign_in(api).headers), 404, "ask-not-found")
    assert api.delete(ask_path, headers=node.headers).status_code == 204
    assert offers(database) == []


def test_stake_and_silence_decide_who_is_offered(api: httpx.Client, database: Database, services: Services) -> None:
    node = sign_in(api)
    register(api, node)
    pass_benchmark(api, node)
    place_ask(api, node, services.domain, ask_of(node))
    assert offers(database) == []  # benchmarked, not staked
    stake(database, node.address, BRONZE.minimum_stake_wei - 1)
    assert status_of(api, node.address) == "benchmarked"
    stake(database, node.address, BRONZE.minimum_stake_wei)
    assert offers(database) == [node.address]
    assert offers(database, timeout=0.0) == []  # not seen within the timeout
    said = beat(api, node, services.domain)
    assert (said["status"], said["tier"], said["counted"]) == ("active", "bronze", True)
    chain_event(database, "UnstakeRequested", node.address, amount=1, unbonding=1, releaseAt=0)
    assert status_of(api, node.address) == "benchmarked"
    assert offers(database) == []


def test_a_slash_projects_the_stake_and_jails_until_release(api: httpx.Client, database: Database) -> None:
    node = sign_in(api)
    register(api, node)
    pass_benchmark(api, node)
    stake(database, node.address, 1_000 * ZEN)
    chain_event(database, "UnstakeRequested", node.address, amount=900 * ZEN, unbonding=900 * ZEN, releaseAt=0)
    chain_event(database, "Jailed", node.address)
    chain_event(database, "Slashed", node.address, offence=2, amount=500 * ZEN, evidence="0x")
    with database.transaction() as session:
        row = service.repository.lock_stake(session, node.address)
        assert (row.stake_wei, row.unbonding_wei) == (0, 500 * ZEN)
    assert api.get(f"/v1/providers/{node.address}").json()["reason"] == "slashed"
    refusal(api.post("/v1/benchmarks", json={"tier": "bronze"}, headers=node.headers), 409, "provider-jailed")
    chain_event(database, "Released", node.address)
    assert status_of(api, node.address) == "registered"
    chain_event(database, "Withdrawn", node.address, amount=500 * ZEN)
    with database.transaction() as session:
        assert service.repository.lock_stake(session, node.address).unbonding_wei == 0


def test_a_wrong_slow_late_or_foreign_answer_earns_nothing(
    api: httpx.Client, database: Database, services: Services
) -> None:
    node, other = sign_in(api), sign_in(api)
    register(api, node)
    run = start_benchmark(api, node)
    right = commit_benchmark(api, node, run)
    refusal(answer_benchmark(api, other, run, right), 404, "benchmark-not-found")
    path = f"/v1/benchmarks/{run['id']}/answer"
    for cid in (
        "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
        cid_of_file(right),
    ):  # the other's upload
        refusal(api.post(path, json={"cid": cid}, headers=node.headers), 422, "answer-not-found")
    wrong = bytearray(right)
    wrong[-1] = (wrong[-1] + 1) % 61
    said = answer_benchmark(api, node, run, bytes(wrong)).json()
    assert (said["passed"], said["reason"], said["tier"]) == (False, "wrong_answer", "bronze")
    refusal(answer_benchmark(api, node, run, right), 409, "benchmark-answered")

    for content in (right, right + b"x", b""):
        run = start_benchmark(api, node)
        commit_benchmark(api, node, run)
        assert answer_benchmark(api, node, run, content).json()["reason"] == "wrong_answer"

    for column, reason in (("started_at", "too_slow"), ("committed_at", "too_late")):
        run = start_benchmark(api, node)
        right = commit_benchmark(api, node, run)
        with database.transaction() as session:
            row = session.get_one(BenchmarkRun, run["id"])
            setattr(row, column, datetime.now(UTC) - timedelta(days=1))
            row.deadline_at = datetime.now(UTC) - timedelta(days=1 if column == "started_at" else -1)
        assert answer_benchmark(api, node, run, right).json()["reason"] == reason


def test_an_answer_may_be_as_large_as_the_proof_and_is_kept_until_it_is_checked(
    api: httpx.Client, services: Services, app: FastAPI
) -> None:
    """On the main network it has 806 MB, more than anybody may upload at once."""
    limits = {"max_blob_bytes": 1_000, "blob_bytes_per_day": 100_000}
    app.state.services = replace(services, settings=services.settings.model_copy(update=limits))
    node = sign_in(api)
    register(api, node)
    refusal(api.post("/v1/blobs", content=bytes(2_000), headers=node.headers), 413, "body-too-large")
    run = start_benchmark(api, node)
    right = commit_benchmark(api, node, run)
    assert len(right) > 1_000_000
    said = answer_benchmark(api, node, run, right).json()
    assert said["passed"]
    assert not services.storage.is_pinned(cid_of_file(right))
    again = {"cid": cid_of_file(right)}
    assert api.post(f"/v1/benchmarks/{run['id']}/answer", json=again, headers=node.headers).json() == said
    refusal(api.post("/v1/blobs", content=bytes(2_000), headers=node.headers), 413, "body-too-large")


def test_answers_are_checked_one_at_a_time(api: httpx.Client) -> None:
    node = sign_in(api)
    register(api, node)
    run = start_benchmark(api, node)
    right = commit_benchmark(api, node, run)
    with benchmarks._CHECKS:
        refusal(answer_benchmark(api, node, run, right), 503, "benchmark-busy")
    assert answer_benchmark(api, node, run, right).json()["passed"]


def test_a_benchmarks_steps_have_their_order(api: httpx.Client, database: Database) -> None:
    node = sign_in(api)
    register(api, node)
    run, commitment = start_benchmark(api, node), {"commitment": "0x" + "ab" * 32}
    path = f"/v1/benchmarks/{run['id']}"
    refusal(api.post(f"{path}/commit", json=commitment, headers=node.headers), 409, "benchmark-out-of-turn")
    refusal(answer_benchmark(api, node, run, b"x"), 409, "benchmark-out-of-turn")
    first = api.post(f"{path}/ready", json={}, headers=node.headers).json()
    assert api.post(f"{path}/ready", json={}, headers=node.headers).json() == first  # no new nonce, no more time
    assert api.post(f"{path}/commit", json=commitment, headers=node.headers).status_code == 200
    other = {"commitment": "0x" + "cd" * 32}
    refusal(api.post(f"{path}/commit", json=other, headers=node.headers), 409, "benchmark-out-of-turn")
    late = start_benchmark(api, node)
    with database.transaction() as session:
        session.get_one(BenchmarkRun, late["id"]).deadline_at = datetime.now(UTC) - timedelta(seconds=1)
    answer = api.post(f"/v1/benchmarks/{late['id']}/ready", json={}, headers=node.headers)
    refusal(answer, 409, "benchmark-out-of-turn")


def test_who_saw_what_to_open_and_did_not_answer_waits(api: httpx.Client, services: Services, app: FastAPI) -> None:
    """Or it could commit to many challenges, and answer the one that asks for nothing that it made up."""
    app.state.services = replace(services, network=replace(services.network, benchmark_pause_seconds=3600))
    node = sign_in(api)
    register(api, node)
    first, second = start_benchmark(api, node), start_benchmark(api, node)
    right = commit_benchmark(api, node, first)
    path = f"/v1/benchmarks/{second['id']}"
    api.post(f"{path}/ready", json={}, headers=node.headers)
    commitment = {"commitment": "0x" + "ab" * 32}
    refusal(api.post(f"{path}/commit", json=commitment, headers=node.headers), 409, "benchmark-paused")
    answer = api.post("/v1/benchmarks", json={"tier": "bronze"}, headers=node.headers)
    assert "not_before" in refusal(answer, 409, "benchmark-paused")
    assert answer_benchmark(api, node, first, right).json()["passed"]
    start_benchmark(api, node)


@pytest.mark.parametrize("least", ["too_late", "link_too_slow"])
def test_who_has_no_answer_gains_nothing_by_being_slow(
    api: httpx.Client, database: Database, services: Services, app: FastAPI, least: str
) -> None:
    """Being slow costs no pause, so an empty answer that came late would have bought another try at once."""
    proof = replace(BRONZE.benchmark, min_mflops=1, min_upload_mbps=1_000 if least == "link_too_slow" else 0)
    tiers = tuple(replace(tier, benchmark=proof) for tier in DEVNET.tiers)
    app.state.services = replace(services, network=replace(DEVNET, tiers=tiers, benchmark_pause_seconds=3600))
    node = sign_in(api)
    register(api, node)
    run = start_benchmark(api, node)
    commit_benchmark(api, node, run)
    if least == "too_late":
        with database.transaction() as session:
            row = session.get_one(BenchmarkRun, run["id"])
            row.committed_at = datetime.now(UTC) - timedelta(seconds=proof.answer_seconds + 1)
    assert answer_benchmark(api, node, run, b"").json()["reason"] == "wrong_answer"
    answer = api.post("/v1/benchmarks", json={"tier": "bronze"}, headers=node.headers)
    refusal(answer, 409, "benchmark-paused")


def test_who_commits_too_late_may_try_again_without_an_answer(
    api: httpx.Client, database: Database, services: Services, app: FastAPI
) -> None:
    """Nodes are told that they were too slow, and do not upload an answer that can earn nothing."""
    app.state.services = replace(services, network=replace(DEVNET, benchmark_pause_seconds=3600))
    node = sign_in(api)
    register(api, node)
    run = start_benchmark(api, node)
    api.post(f"/v1/benchmarks/{run['id']}/ready", json={}, headers=node.headers)
    with database.transaction() as session:
        session.get_one(BenchmarkRun, run["id"]).deadline_at = datetime.now(UTC) - timedelta(seconds=1)
    body = {"commitment": "0x" + "ab" * 32}
    said = api.post(f"/v1/benchmarks/{run['id']}/commit", json=body, headers=node.headers).json()
    assert not said["in_time"]
    start_benchmark(api, node)


def test_only_heartbeats_that_answer_the_last_challenge_count(
    api: httpx.Client, database: Database, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = sign_in(api), sign_in(api)
    for caller in (node, other):
        register(api, caller)

    def send(challenge: str, signer: Caller) -> bool:
        message = typed_data(services.domain, Heartbeat(node.address, challenge))
        body = {"challenge": challenge, "signature": sign(signer.wallet.key.hex(), message)}
        counted: bool = api.post("/v1/providers/me/heartbeat", json=body, headers=node.headers).json()["counted"]
        return counted

    def seen() -> datetime | None:
        with database.transaction() as session:
            return session.get_one(Provider, node.address).last_seen_at

    before = seen()
    told = api.post("/v1/providers/me/heartbeat", json={}, headers=node.headers).json()
    assert not told["counted"]
    foreign = api.post("/v1/providers/me/heartbeat", json={}, headers=other.headers).json()["challenge"]
    for challenge, signer in (("", node), ("0x" + "ab" * 32, node), (foreign, node), (told["challenge"], other)):
        assert not send(challenge or "0x" + "00" * 32, signer)
    assert seen() == before
    assert send(told["challenge"], node)
    assert seen() != before
    old = services.liveness.challenge(node.address, time.time() - 3 * 60)
    assert not send(old, node)  # recorded beforehand


def test_hardware_is_shown_again_at_a_time_that_nobody_is_told(
    api: httpx.Client, database: Database, services: Services
) -> None:
    node = sign_in(api)
    register(api, node)
    pass_benchmark(api, node)

    def due() -> str | None:
        found: str | None = beat(api, node, services.domain)["benchmark_by"]
        return found

    def draw(**values: datetime | None) -> None:
        with database.transaction() as session:
            for name, value in values.items():
                setattr(session.get_one(Provider, node.address), name, value)

    now = datetime.now(UTC)
    assert due() is None
    draw(rebenchmark_at=now)
    token_only = api.post("/v1/providers/me/heartbeat", json={}, headers=node.headers).json()
    assert token_only["benchmark_by"] is None  # nor does its clock begin to run
    told = due()
    assert told is not None
    assert due() == told  # asking again gives no more time
    benchmarks.demote_overdue(database, now)
    assert status_of(api, node.address) == "benchmarked"
    pass_benchmark(api, node)
    assert due() is None
    draw(rebenchmark_at=now)
    due()
    benchmarks.demote_overdue(database, now + timedelta(days=1))
    found = api.get(f"/v1/providers/{node.address}").json()
    assert (found["status"], found["reason"]) == ("demoted", "rebenchmark_missed")
    reviews.review(database, DEVNET, now)
    assert status_of(api, node.address) == "demoted"  # however reliable it is otherwise
    pass_benchmark(api, node)
    assert status_of(api, node.address) == "benchmarked"


def test_benchmarks_have_their_preconditions(api: httpx.Client) -> None:
    node = sign_in(api)
    tier = {"tier": "bronze"}
    refusal(api.post("/v1/benchmarks", json=tier, headers=node.headers), 409, "not-registered")
    register(api, node, hardware=HARDWARE | {"ram_gb": 0.5})
    refusal(api.post("/v1/benchmarks", json={"tier": "platinum"}, headers=node.headers), 422, "unknown-tier")
    problem = refusal(api.post("/v1/benchmarks", json=tier, headers=node.headers), 422, "hardware-insufficient")
    assert problem["field"] == "hardware.ram_gb"


def test_an_ask_must_be_the_callers_own_fresh_signature(
    api: httpx.Client, database: Database, services: Services
) -> None:
    node, other = sign_in(api), sign_in(api)
    for caller in (node, other):
        register(api, caller)
        pass_benchmark(api, caller)
    domain = services.domain
    first = ask_of(node)
    assert place_ask(api, node, domain, first).status_code == 201
    refusal(place_ask(api, node, domain, first), 409, "nonce-replayed")
    refusal(place_ask(api, node, domain, replace(first, minPrice=1)), 409, "nonce-replayed")

    forged = ask_body(node, domain, ask_of(node))
    assert isinstance(forged["ask"], dict)
    forged["ask"]["minPrice"] = "1"
    refusal(api.post("/v1/asks", json=forged, headers=node.headers), 422, "invalid-signature")
    malformed = ask_body(node, domain, ask_of(node)) | {"signature": "0x1234"}
    refusal(api.post("/v1/asks", json=malformed, headers=node.headers), 422, "invalid-signature")
    elsewhere = replace(domain, chain_id=domain.chain_id + 1)
    refusal(place_ask(api, node, elsewhere, ask_of(node)), 422, "invalid-signature")
    body = ask_body(node, domain, ask_of(node))
    refusal(api.post("/v1/asks", json=body, headers=other.headers), 422, "invalid-signature")

    for changes, field in (({"gpus": 1}, "ask.gpus"), ({"validUntil": 1}, "ask.validUntil")):
        refused = place_ask(api, node, domain, ask_of(node, **changes))
        assert refusal(refused, 422, "invalid-ask")["field"] == field
    refusal(place_ask(api, node, domain, ask_of(node, tier=9)), 422, "unknown-tier")
    refusal(place_ask(api, node, domain, ask_of(node, tier=3, gpus=8)), 409, "tier-not-earned")

    second = place_ask(api, node, domain, ask_of(node))
    assert second.status_code == 201
    listed = api.get("/v1/asks", headers=node.headers).json()
    assert [row["status"] for row in listed] == ["open", "replaced"]


@pytest.mark.parametrize("kind", ["provider", "verifier"])
def test_a_wallet_keeps_its_role(api: httpx.Client, kind: str) -> None:
    node = sign_in(api)
    register(api, node, kind)
    other = "verifier" if kind == "provider" else "provider"
    refusal(register(api, node, other), 409, "provider-kind-fixed")


def test_a_verifier_needs_its_stake_only(api: httpx.Client, database: Database) -> None:
    node = sign_in(api)
    register(api, node, "verifier")
    refusal(
        api.post("/v1/benchmarks", json={"tier": "bronze"}, headers=node.headers), 409, "verifier-needs-no-benchmark"
    )
    stake(database, node.address, DEVNET.verifier_minimum_stake_wei)
    with database.transaction() as session:
        live = service.live_verifiers(session, datetime.now(UTC), 30.0)
        assert [(facts.address, facts.environment_class) for facts in live] == [(node.address, CLASS_A)]
        assert service.live_verifiers(session, datetime.now(UTC) + timedelta(minutes=1), 30.0) == []


def test_a_changed_environment_withdraws_the_ask(api: httpx.Client, database: Database, services: Services) -> None:
    node = sign_in(api)
    register(api, node)
    pass_benchmark(api, node)
    stake(database, node.address, BRONZE.minimum_stake_wei)
    place_ask(api, node, services.domain, ask_of(node))
    register(api, node, name="renamed")
    assert offers(database) == [node.address]
    register(api, node, environment_class="0x" + "BB" * 32)
    assert offers(database) == []


def test_providers_are_listed_page_by_page(api: httpx.Client) -> None:
    addresses = set()
    for _ in range(3):
        node = sign_in(api)
        register(api, node)
        addresses.add(node.address)
    first = api.get("/v1/providers", params={"limit": 2}).json()
    rest = api.get("/v1/providers", params={"limit": 2, "after": first["next_after"]}).json()
    assert {item["address"] for item in first["items"] + rest["items"]} == addresses
    assert rest["next_after"] is None
    refusal(api.get("/v1/providers/0x" + "12" * 20), 404, "provider-not-found")


def test_a_quote_that_cannot_be_compared_with_the_chain_is_asked_for_again(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain of these tests does not answer: the challenge stays open, and nobody sees a failure of ours."""
    valid = Verified("TDX", "0x" + "ab" * 32, "UpToDate", (), int(time.time()) + 10**6)
    monkeypatch.setattr(Evidence, "verify", lambda *_: valid)
    node = sign_in(api)
    register(api, node)
    challenge = api.post("/v1/attestations", json={}, headers=node.headers).json()
    collateral = dict.fromkeys(COLLATERAL_FIELDS, "00")
    body = {"quote": "00" * 64, "collateral": collateral}
    for _ in range(2):
        answer = api.post(f"/v1/attestations/{challenge['id']}/quote", json=body, headers=node.headers)
        refusal(answer, 503, "chain-unavailable")
