"""A node's way into the book: registration, benchmark, stake, ask; and out of it."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI
from kit.api import provider_calls as calls
from kit.api.clients import Caller, accepted, refusal, sign_in
from kit.errors import raising
from redis.exceptions import ConnectionError
from sqlalchemy import select

from market.domain.network import DEVNET, ZEN
from market.platform.db.session import Database
from market.platform.events.models import AuditEvent
from market.platform.http.services import Services
from market.providers import service as providers
from market.providers.attestation.schemas import Collateral
from market.providers.liveness import Liveness
from market.providers.models import Provider
from market.settings import Settings
from zoo_protocol.attestation.tee_quotes import Evidence, Verified
from zoo_protocol.messages import Heartbeat, sign, struct_hash, typed_data


def test_network_may_restrict_environment_classes(api: httpx.Client, services: Services, app: FastAPI) -> None:
    """Otherwise a provider could invent a class and supply its verifiers."""
    first, second = sign_in(api), sign_in(api)
    assert calls.register(first).status_code == 201  # by default any
    named = {"environment_classes": f"{'0x' + '55' * 32},{'0x' + '66' * 32}"}
    settings = Settings.model_validate(services.settings.model_dump() | named)
    app.state.services = replace(services, settings=settings)
    for caller, kind in ((first, "provider"), (second, "verifier")):
        problem = refusal(calls.register(caller, kind=kind), 422, "environment-not-accepted")
        assert (problem["field"], problem["accepted"]) == ("environment_class", named["environment_classes"].split(","))
    app.state.services = replace(services, settings=settings.model_copy(update={"environment_classes": calls.CLASS_A}))
    assert calls.register(second, kind="verifier").status_code == 201


def test_node_enters_book_after_benchmark_stake_and_ask(
    api: httpx.Client, database: Database, services: Services
) -> None:
    node = sign_in(api)
    calls.stake(database, node.address, calls.BRONZE.minimum_stake_wei)  # a wallet may stake before it registers
    declared = calls.HARDWARE | {"processes": 2, "network_removed": False}
    view = accepted(calls.register(node, hardware=declared), 201)
    assert (view["hardware"], view["problems"][0]["code"]) == (declared, "network_not_removed")
    assert calls.status_of(api, node.address) == "registered"
    refusal(calls.place_ask(node, services.domain, calls.ask_of(node)), 409, "tier-not-earned")

    calls.pass_benchmark(node)
    assert calls.status_of(api, node.address) == "active"
    ask = calls.ask_of(node)
    placed = accepted(calls.place_ask(node, services.domain, ask), 201)
    assert (placed["id"], placed["min_price_wei"]) == (struct_hash(ask), str(2 * ZEN))
    assert calls.offers(database, services.settings) == [node.address]

    with database.transaction() as session:
        moves = session.scalars(
            select(AuditEvent.event).where(AuditEvent.subject_id == node.address).order_by(AuditEvent.id)
        )
        assert list(moves) == ["benchmark_passed", "stake_sufficient"]

    ask_path = f"/v1/asks/{placed['id']}"
    refusal(sign_in(api).delete(ask_path), 404, "ask-not-found")
    assert node.delete(ask_path).status_code == 204
    assert calls.offers(database, services.settings) == []


def test_stake_and_heartbeats_decide_offered_nodes(api: httpx.Client, database: Database, services: Services) -> None:
    node = calls.registered(api)
    calls.pass_benchmark(node)
    calls.place_ask(node, services.domain, calls.ask_of(node))
    assert calls.offers(database, services.settings) == []  # benchmarked, not staked
    calls.stake(database, node.address, calls.BRONZE.minimum_stake_wei - 1)
    assert calls.status_of(api, node.address) == "benchmarked"
    calls.stake(database, node.address, calls.BRONZE.minimum_stake_wei)
    assert calls.offers(database, services.settings) == [node.address]
    impatient = services.settings.model_copy(update={"heartbeat_timeout_seconds": 0.0})
    assert calls.offers(database, impatient) == []  # not seen within the timeout
    state = calls.beat(node, services.domain)
    assert (state["status"], state["tier"], state["counted"]) == ("active", "bronze", True)
    calls.chain_event(database, "UnstakeRequested", node.address, amount=1, unbonding=1, releaseAt=0)
    assert calls.status_of(api, node.address) == "benchmarked"
    assert calls.offers(database, services.settings) == []


def test_slash_updates_stake_and_jails_until_release(api: httpx.Client, database: Database) -> None:
    node = calls.registered(api)
    calls.pass_benchmark(node)
    calls.stake(database, node.address, 1_000 * ZEN)
    calls.chain_event(database, "UnstakeRequested", node.address, amount=900 * ZEN, unbonding=900 * ZEN, releaseAt=0)
    calls.chain_event(database, "Jailed", node.address)
    calls.chain_event(database, "Slashed", node.address, offence=2, amount=500 * ZEN, evidence="0x")
    with database.transaction() as session:
        row = providers.repository.lock_stake(session, node.address)
        assert (row.stake_wei, row.unbonding_wei) == (0, 500 * ZEN)
    assert api.get(f"/v1/providers/{node.address}").json()["reason"] == "slashed"
    refusal(node.post("/v1/benchmarks", json={"tier": "bronze"}), 409, "provider-jailed")
    calls.chain_event(database, "Released", node.address)
    assert calls.status_of(api, node.address) == "registered"
    calls.chain_event(database, "Withdrawn", node.address, amount=500 * ZEN)
    with database.transaction() as session:
        assert providers.repository.lock_stake(session, node.address).unbonding_wei == 0


def test_only_heartbeats_answering_last_challenge_count(
    api: httpx.Client, database: Database, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = sign_in(api), sign_in(api)
    for caller in (node, other):
        calls.register(caller)

    def send(challenge: str, signer: Caller) -> bool:
        message = typed_data(services.domain, Heartbeat(node.address, challenge))
        body = {"challenge": challenge, "signature": sign(signer.wallet.key.hex(), message)}
        counted: bool = node.post("/v1/leases/next", json=body).json()["counted"]
        return counted

    def seen() -> datetime | None:
        with database.transaction() as session:
            return session.get_one(Provider, node.address).last_seen_at

    before = seen()
    answer = node.post("/v1/leases/next", json={}).json()
    assert not answer["counted"]
    foreign = other.post("/v1/leases/next", json={}).json()["challenge"]
    for challenge, signer in (("", node), ("0x" + "ab" * 32, node), (foreign, node), (answer["challenge"], other)):
        assert not send(challenge or "0x" + "00" * 32, signer)
    calls.register(node)  # a session's token suffices, so it keeps no node in the order book
    assert seen() == before
    assert send(answer["challenge"], node)
    assert seen() != before
    old = services.part(Liveness).challenge(node.address, time.time() - 3 * 60)
    assert not send(old, node)  # recorded beforehand


def test_wallet_serves_only_one_node(api: httpx.Client, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    node = calls.registered(api)

    def beat(session: str, *predecessors: str, signer: Caller = node) -> httpx.Response:
        challenge = node.post("/v1/leases/next", json={}).json()["challenge"]
        signature = sign(signer.wallet.key.hex(), typed_data(services.domain, Heartbeat(node.address, challenge)))
        body = {"challenge": challenge, "signature": signature, "session": session, "predecessors": list(predecessors)}
        return node.post("/v1/leases/next", json=body)

    for _ in range(2):
        assert beat("first").json()["counted"]
    assert beat("stranger", "another").json()["code"] == "wallet-in-use"
    assert not beat("thief", "first", signer=sign_in(api)).json()["counted"]  # no takeover without a signature
    assert beat("first").json()["counted"]
    assert beat("started again", "before", "first").json()["counted"]
    refusal(beat("first", "before"), 409, "wallet-in-use")  # the copy that is left of two
    assert beat("").json()["counted"]  # a node of before names none
    services.redis.delete(f"zoo:node:{node.address}")  # as after a silence
    assert beat("stranger").json()["counted"]
    assert 0 < services.redis.pttl(f"zoo:node:{node.address}") <= 1000 * services.settings.heartbeat_timeout_seconds

    monkeypatch.setattr(services.redis, "get", raising(ConnectionError("a test")))
    assert beat("first").json()["counted"]


def test_ask_requires_fresh_signature_of_caller(api: httpx.Client, database: Database, services: Services) -> None:
    node, other = sign_in(api), sign_in(api)
    for caller in (node, other):
        calls.register(caller)
        calls.pass_benchmark(caller)
    domain = services.domain
    first = calls.ask_of(node)
    assert calls.place_ask(node, domain, first).status_code == 201
    refusal(calls.place_ask(node, domain, first), 409, "nonce-replayed")
    refusal(calls.place_ask(node, domain, replace(first, minPrice=1)), 409, "nonce-replayed")

    forged = calls.ask_body(node, domain, calls.ask_of(node))
    assert isinstance(forged["ask"], dict)
    forged["ask"]["minPrice"] = "1"
    refusal(node.post("/v1/asks", json=forged), 422, "invalid-signature")
    malformed = calls.ask_body(node, domain, calls.ask_of(node)) | {"signature": "0x1234"}
    refusal(node.post("/v1/asks", json=malformed), 422, "invalid-signature")
    elsewhere = replace(domain, chain_id=domain.chain_id + 1)
    refusal(calls.place_ask(node, elsewhere, calls.ask_of(node)), 422, "invalid-signature")
    body = calls.ask_body(node, domain, calls.ask_of(node))
    refusal(other.post("/v1/asks", json=body), 422, "invalid-signature")

    for changes, field in (({"gpus": 1}, "ask.gpus"), ({"validUntil": 1}, "ask.validUntil")):
        refused = calls.place_ask(node, domain, calls.ask_of(node, **changes))
        assert refusal(refused, 422, "invalid-ask")["field"] == field
    refusal(calls.place_ask(node, domain, calls.ask_of(node, tier=9)), 422, "unknown-tier")
    refusal(calls.place_ask(node, domain, calls.ask_of(node, tier=3, gpus=8)), 409, "tier-not-earned")

    second = calls.place_ask(node, domain, calls.ask_of(node))
    assert second.status_code == 201
    listed = node.get("/v1/asks").json()
    assert [row["status"] for row in listed] == ["open", "replaced"]


@pytest.mark.parametrize("kind", ["provider", "verifier"])
def test_second_role_of_wallet_is_refused(api: httpx.Client, kind: str) -> None:
    node = sign_in(api)
    calls.register(node, kind)
    other = "verifier" if kind == "provider" else "provider"
    refusal(calls.register(node, other), 409, "provider-kind-fixed")


def test_verifier_needs_only_stake(api: httpx.Client, database: Database, services: Services) -> None:
    node = sign_in(api)
    calls.register(node, "verifier")
    refusal(node.post("/v1/benchmarks", json={"tier": "bronze"}), 409, "verifier-needs-no-benchmark")
    calls.stake(database, node.address, DEVNET.verifier_minimum_stake_wei)
    with database.transaction() as session:
        live = providers.live_verifiers(session, services.settings, datetime.now(UTC))
        assert [(facts.address, facts.environment_class) for facts in live] == [(node.address, calls.CLASS_A)]
        assert providers.live_verifiers(session, services.settings, datetime.now(UTC) + timedelta(minutes=1)) == []


def test_changed_environment_withdraws_ask(api: httpx.Client, database: Database, services: Services) -> None:
    node = calls.registered(api)
    calls.pass_benchmark(node)
    calls.stake(database, node.address, calls.BRONZE.minimum_stake_wei)
    calls.place_ask(node, services.domain, calls.ask_of(node))
    calls.register(node, name="renamed")
    assert calls.offers(database, services.settings) == [node.address]
    calls.register(node, environment_class="0x" + "BB" * 32)
    assert calls.offers(database, services.settings) == []


def test_providers_are_listed_page_by_page(api: httpx.Client) -> None:
    addresses = set()
    for _ in range(3):
        node = calls.registered(api)
        addresses.add(node.address)
    first = api.get("/v1/providers", params={"limit": 2}).json()
    rest = api.get("/v1/providers", params={"limit": 2, "after": first["next_after"]}).json()
    assert {item["address"] for item in first["items"] + rest["items"]} == addresses
    assert rest["next_after"] is None
    refusal(api.get("/v1/providers/0x" + "12" * 20), 404, "provider-not-found")


def test_tee_quote_is_requested_again_when_chain_unreachable(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    valid = Verified("TDX", "0x" + "ab" * 32, "UpToDate", (), int(time.time()) + 10**6)
    monkeypatch.setattr(Evidence, "verify", lambda *_: valid)
    node = calls.registered(api)
    challenge = node.post("/v1/attestations", json={}).json()
    collateral = dict.fromkeys(Collateral.model_fields, "00")
    body = {"quote": "00" * 64, "collateral": collateral}
    for _ in range(2):
        answer = node.post(f"/v1/attestations/{challenge['id']}/quote", json=body)
        refusal(answer, 503, "chain-unavailable")
