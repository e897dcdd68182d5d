"""Markets, nodes and command lines for the tests of the API."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from kit.api.clients import Cli, sign_in
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import PROVIDER, Chain
from kit.engines.ipfs_processes import StoreProcess, store_process
from kit.jobs.jobs_fixtures import World
from kit.nodes.node_work_fixtures import OneNode
from kit.payments.rewards_fixtures import RewardsWorld
from kit.records import Records
from kit.verification.live_fixtures import LiveMaker, LiveWorld
from kit.verification.live_worlds import cheating_executor, honest_executor, live_market_maker  # noqa: F401  (fixtures)

from market.chain.contracts.codec import Deployment
from market.platform.db.session import Database
from market.platform.http.services import Services
from market.platform.storage.client import Storage
from market.settings import Settings
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.messages import Domain


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
