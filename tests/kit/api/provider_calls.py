"""A node's calls until it is in the order book: registration, benchmark, stake, ask."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import httpx
import torch

from kit.api.clients import Caller, accepted, sign_in
from market.chain.contracts.codec import ChainEvent
from market.domain.network import DEVNET, ZEN
from market.platform.db.session import Database
from market.providers import lifecycle
from market.providers import service as providers
from market.settings import Settings
from training_gym.hardware.challenge import ProofParameters
from training_gym.hardware.prover import Prover
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import Ask, Domain, Heartbeat, sign, typed_data

CLASS_A = "0x" + "aa" * 32
HARDWARE = {"gpu_model": "cpu", "gpu_count": 0, "gpu_memory_gb": 4, "ram_gb": 4, "network_gbps": 1}
BRONZE = DEVNET.tier("bronze")


def register(caller: Caller, kind: str = "provider", **changes: object) -> httpx.Response:
    body = {"name": "n", "kind": kind, "region": "lab", "hardware": HARDWARE, "environment_class": CLASS_A}
    return caller.post("/v1/providers", json=body | changes)


def registered(api: httpx.Client) -> Caller:
    """Sign in and register a provider."""
    caller = sign_in(api)
    register(caller)
    return caller


def start_benchmark(caller: Caller, tier: str = "bronze") -> dict[str, Any]:
    run: dict[str, Any] = accepted(caller.post("/v1/benchmarks", json={"tier": tier}), 201)
    return run


def commit_benchmark(caller: Caller, run: Mapping[str, Any]) -> bytes:
    """Answer a challenge up to the commitment; return the correct answer."""
    prover = Prover(ProofParameters(**run["work"]), from_hex(run["seed"]), [torch.device("cpu")])
    path = f"/v1/benchmarks/{run['id']}"
    nonce = caller.post(f"{path}/ready", json={}).json()["nonce"]
    body = {"commitment": to_hex(prover.work(from_hex(nonce)))}
    answer = accepted(caller.post(f"{path}/commit", json=body))
    assert answer == caller.post(f"{path}/commit", json=body).json()
    return prover.open(from_hex(answer["secret"]))


def beat(caller: Caller, domain: Domain, **poll: object) -> dict[str, Any]:
    """Poll with a valid heartbeat, by default for no work."""
    challenge = caller.post("/v1/leases/next", json={}).json()["challenge"]
    signature = sign(caller.wallet.key.hex(), typed_data(domain, Heartbeat(caller.address, challenge)))
    body = {"challenge": challenge, "signature": signature, **poll}
    answer: dict[str, Any] = accepted(caller.post("/v1/leases/next", json=body))
    return answer


def answer_benchmark(caller: Caller, run: Mapping[str, Any], content: bytes) -> httpx.Response:
    cid = caller.post("/v1/blobs", content=content).json()["cid"]
    return caller.post(f"/v1/benchmarks/{run['id']}/answer", json={"cid": cid})


def pass_benchmark(caller: Caller, tier: str = "bronze") -> None:
    run = start_benchmark(caller, tier)
    assert answer_benchmark(caller, run, commit_benchmark(caller, run)).json()["passed"]


def chain_event(database: Database, name: str, address: str, **args: object) -> None:
    """Deliver one final event of the staking contract, as the indexer does."""
    event = ChainEvent("ProviderStaking", name, {"provider": address, **args}, "0x", 1, "0x", 0, int(time.time()))
    with database.transaction() as session:
        lifecycle.on_stake_changed(DEVNET, session, event)


def stake(database: Database, address: str, total: int) -> None:
    chain_event(database, "Staked", address, amount=total, total=total)


def ask_of(caller: Caller, **changes: object) -> Ask:
    until = int(time.time()) + 3600
    ask = Ask(caller.address, BRONZE.id, BRONZE.gpus, 2 * ZEN, until, secrets.randbits(200))
    return replace(ask, **changes)  # type: ignore[arg-type]


def ask_body(caller: Caller, domain: Domain, ask: Ask) -> dict[str, object]:
    signature = sign(caller.wallet.key.hex(), typed_data(domain, ask))
    return {"ask": asdict(ask) | {"minPrice": str(ask.minPrice), "nonce": str(ask.nonce)}, "signature": signature}


def place_ask(caller: Caller, domain: Domain, ask: Ask) -> httpx.Response:
    return caller.post("/v1/asks", json=ask_body(caller, domain, ask))


def status_of(api: httpx.Client, address: str) -> str:
    return str(api.get(f"/v1/providers/{address}").json()["status"])


def offers(database: Database, settings: Settings) -> list[str]:
    with database.transaction() as session:
        return [offer.provider for offer in providers.open_offers(session, settings, BRONZE.id, datetime.now(UTC))]
