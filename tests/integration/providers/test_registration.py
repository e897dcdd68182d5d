"""A node's way into the book: registration, benchmark, stake, ask; and out of it."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Caller, refusal, sign_in
from kit.api.provider_calls import (
    BRONZE,
    CLASS_A,
    ask_body,
    ask_of,
    beat,
    chain_event,
    offers,
    pass_benchmark,
    place_ask,
    register,
    registered,
    stake,
    status_of,
)
from kit.errors import raising
from redis.exceptions import ConnectionError
from sqlalchemy import select

from market.domain.network import DEVNET, ZEN
from market.platform.db.session import Database
from market.platform.events.models import AuditEvent
from market.platform.http.services import Services
from market.providers import service as providers
from market.providers.liveness import Liveness
from market.providers.models import Provider
from market.settings import Settings
from zoo_protocol.attestation.tee_quotes import COLLATERAL_FIELDS, Evidence, Verified
from zoo_protocol.messages import Heartbeat, sign, struct_hash, typed_data


def test_network_may_restrict_environment_classes(api: httpx.Client, services: Services, app: FastAPI) -> None:
    """Otherwise a provider could invent a class and supply its verifiers."""
    first, second = sign_in(api), sign_in(api)
    assert register(first).status_code == 201  # by default any
    named = {"environment_classes": f"{'0x' + '55' * 32},{'0x' + '66' * 32}"}
    settings = Settings.model_validate(services.settings.model_dump() | named)
    app.state.services = replace(services, settings=settings)
    for caller, kind in ((first, "provider"), (second, "verifier")):
        problem = refusal(register(caller, kind=kind), 422, "environment-not-accepted")
        assert (problem["field"], problem["accepted"]) == ("environment_class", named["environment_classes"].split(","))
    app.state.services = replace(services, settings=settings.model_copy(update={"environment_classes": CLASS_A}))
    assert register(second, kind="verifier").status_code == 201


def test_node_enters_book_after_benchmark_stake_and_ask(
    api: httpx.Client, database: Database, services: Services
) -> None:
    node = sign_in(api)
    stake(database, node.address, BRONZE.minimum_stake_wei)  # a wallet may stake before it registers
    assert register(node).status_code == 201
    assert status_of(api, node.address) == "registered"
    refusal(place_ask(node, services.domain, ask_of(node)), 409, "tier-not-earned")

    pass_benchmark(node)
    assert status_of(api, node.address) == "active"
    ask = ask_of(node)
    placed = place_ask(node, services.domain, ask)
    assert placed.status_code == 201, placed.text
    assert placed.json()["id"] == struct_hash(ask)
    assert placed.json()["min_price_wei"] == str(2 * ZEN)
    assert offers(database, services.settings) == [node.address]

    with database.transaction() as session:
        moves = session.scalars(
            select(AuditEvent.event).where(AuditEvent.subject_id == node.address).order_by(AuditEvent.id)
        )
        assert list(moves) == ["benchmark_passed", "stake_sufficient"]

    ask_path = f"/v1/asks/{placed.json()['id']}"
    refusal(sign_in(api).delete(ask_path), 404, "ask-not-found")
    assert node.delete(ask_path).status_code == 204
    assert offers(database, services.settings) == []


def test_stake_and_heartbeats_decide_offered_nodes(api: httpx.Client, database: Database, services: Services) -> None:
    node = registered(api)
    pass_benchmark(node)
    place_ask(node, services.domain, ask_of(node))
    assert offers(database, services.settings) == []  # benchmarked, not staked
    stake(database, node.address, BRONZE.minimum_stake_wei - 1)
    assert status_of(api, node.address) == "benchmarked"
    stake(database, node.address, BRONZE.minimum_stake_wei)
    assert offers(database, services.settings) == [node.address]
    impatient = services.settings.model_copy(update={"heartbeat_timeout_seconds": 0.0})
    assert offers(database, impatient) == []  # not seen within the timeout
    state = beat(node, services.domain)
    assert (state["status"], state["tier"], state["counted"]) == ("active", "bronze", True)
    chain_event(database, "UnstakeRequested", node.address, amount=1, unbonding=1, releaseAt=0)
    assert status_of(api, node.address) == "benchmarked"
    assert offers(database, services.settings) == []


def test_slash_updates_stake_and_jails_until_release(api: httpx.Client, database: Database) -> None:
    node = registered(api)
    pass_benchmark(node)
    stake(database, node.address, 1_000 * ZEN)
    chain_event(database, "UnstakeRequested", node.address, amount=900 * ZEN, unbonding=900 * ZEN, releaseAt=0)
    chain_event(database, "Jailed", node.address)
    chain_event(database, "Slashed", node.address, offence=2, amount=500 * ZEN, evidence="0x")
    with database.transaction() as session:
        row = providers.repository.lock_stake(session, node.address)
        assert (row.stake_wei, row.unbonding_wei) == (0, 500 * ZEN)
    assert api.get(f"/v1/providers/{node.address}").json()["reason"] == "slashed"
    refusal(node.post("/v1/benchmarks", json={"tier": "bronze"}), 409, "provider-jailed")
    chain_event(database, "Released", node.address)
    assert status_of(api, node.address) == "registered"
    chain_event(database, "Withdrawn", node.address, amount=500 * ZEN)
    with database.transaction() as session:
        assert providers.repository.lock_stake(session, node.address).unbonding_wei == 0


def test_only_heartbeats_answering_last_challenge_count(
    api: httpx.Client, database: Database, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = sign_in(api), sign_in(api)
    for caller in (node, other):
        register(caller)

    def send(challenge: str, signer: Caller) -> bool:
        message = typed_data(services.domain, Heartbeat(node.address, challenge))
        body = {"challenge": challenge, "signature": sign(signer.wallet.key.hex(), message)}
        counted: bool = node.post("/v1/providers/me/heartbeat", json=body).json()["counted"]
        return counted

    def seen() -> datetime | None:
        with database.transaction() as session:
            return session.get_one(Provider, node.address).last_seen_at

    before = seen()
    answer = node.post("/v1/providers/me/heartbeat", json={}).json()
    assert not answer["counted"]
    foreign = other.post("/v1/providers/me/heartbeat", json={}).json()["challenge"]
    for challenge, signer in (("", node), ("0x" + "ab" * 32, node), (foreign, node), (answer["challenge"], other)):
        assert not send(challenge or "0x" + "00" * 32, signer)
    register(node)  # a session's token suffices, so it keeps no node in the order book
    assert seen() == before
    assert send(answer["challenge"], node)
    assert seen() != before
    old = services.part(Liveness).challenge(node.address, time.time() - 3 * 60)
    assert not send(old, node)  # recorded beforehand


def test_wallet_serves_only_one_node(api: httpx.Client, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    node = registered(api)

    def beat(session: str, *predecessors: str, signer: Caller = node) -> httpx.Response:
        challenge = node.post("/v1/providers/me/heartbeat", json={}).json()["challenge"]
        signature = sign(signer.wallet.key.hex(), typed_data(services.domain, Heartbeat(node.address, challenge)))
        body = {"challenge": challenge, "signature": signature, "session": session, "predecessors": list(predecessors)}
        return node.post("/v1/providers/me/heartbeat", json=body)

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
        register(caller)
        pass_benchmark(caller)
    domain = services.domain
    first = ask_of(node)
    assert place_ask(node, domain, first).status_code == 201
    refusal(place_ask(node, domain, first), 409, "nonce-replayed")
    refusal(place_ask(node, domain, replace(first, minPrice=1)), 409, "nonce-replayed")

    forged = ask_body(node, domain, ask_of(node))
    assert isinstance(forged["ask"], dict)
    forged["ask"]["minPrice"] = "1"
    refusal(node.post("/v1/asks", json=forged), 422, "invalid-signature")
    malformed = ask_body(node, domain, ask_of(node)) | {"signature": "0x1234"}
    refusal(node.post("/v1/asks", json=malformed), 422, "invalid-signature")
    elsewhere = replace(domain, chain_id=domain.chain_id + 1)
    refusal(place_ask(node, elsewhere, ask_of(node)), 422, "invalid-signature")
    body = ask_body(node, domain, ask_of(node))
    refusal(other.post("/v1/asks", json=body), 422, "invalid-signature")

    for changes, field in (({"gpus": 1}, "ask.gpus"), ({"validUntil": 1}, "ask.validUntil")):
        refused = place_ask(node, domain, ask_of(node, **changes))
        assert refusal(refused, 422, "invalid-ask")["field"] == field
    refusal(place_ask(node, domain, ask_of(node, tier=9)), 422, "unknown-tier")
    refusal(place_ask(node, domain, ask_of(node, tier=3, gpus=8)), 409, "tier-not-earned")

    second = place_ask(node, domain, ask_of(node))
    assert second.status_code == 201
    listed = node.get("/v1/asks").json()
    assert [row["status"] for row in listed] == ["open", "replaced"]


@pytest.mark.parametrize("kind", ["provider", "verifier"])
def test_second_role_of_wallet_is_refused(api: httpx.Client, kind: str) -> None:
    node = sign_in(api)
    register(node, kind)
    other = "verifier" if kind == "provider" else "provider"
    refusal(register(node, other), 409, "provider-kind-fixed")


def test_verifier_needs_only_stake(api: httpx.Client, database: Database, services: Services) -> None:
    node = sign_in(api)
    register(node, "verifier")
    refusal(node.post("/v1/benchmarks", json={"tier": "bronze"}), 409, "verifier-needs-no-benchmark")
    stake(database, node.address, DEVNET.verifier_minimum_stake_wei)
    with database.transaction() as session:
        live = providers.live_verifiers(session, services.settings, datetime.now(UTC))
        assert [(facts.address, facts.environment_class) for facts in live] == [(node.address, CLASS_A)]
        assert providers.live_verifiers(session, services.settings, datetime.now(UTC) + timedelta(minutes=1)) == []


def test_changed_environment_withdraws_ask(api: httpx.Client, database: Database, services: Services) -> None:
    node = registered(api)
    pass_benchmark(node)
    stake(database, node.address, BRONZE.minimum_stake_wei)
    place_ask(node, services.domain, ask_of(node))
    register(node, name="renamed")
    assert offers(database, services.settings) == [node.address]
    register(node, environment_class="0x" + "BB" * 32)
    assert offers(database, services.settings) == []


def test_providers_are_listed_page_by_page(api: httpx.Client) -> None:
    addresses = set()
    for _ in range(3):
        node = registered(api)
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
    node = registered(api)
    challenge = node.post("/v1/attestations", json={}).json()
    collateral = dict.fromkeys(COLLATERAL_FIELDS, "00")
    body = {"quote": "00" * 64, "collateral": collateral}
    for _ in range(2):
        answer = node.post(f"/v1/attestations/{challenge['id']}/quote", json=body)
        refusal(answer, 503, "chain-unavailable")
