"""Parts of a devnet: engines, contracts, market processes, nodes; dependencies."""

import json
import os
import secrets
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import zoo_compute
from zoo_compute.base.errors import DevnetError
from zoo_compute.devnet import accounts, engines
from zoo_compute.devnet.parts import Part
from zoo_compute.devnet.processes import free_port, port_is_free
from zoo_compute.devnet.state import State, StateDirectory

PROJECT_ROOT = Path(zoo_compute.__file__).parents[1]
_PORTS = ("postgres", "valkey", "anvil", "ipfs", "gateway", "api")
_ENGINES = {
    "ZOO_DATABASE_URL": engines.postgres,
    "ZOO_REDIS_URL": engines.valkey,
    "ZOO_RPC_URL": engines.anvil,
    "ZOO_IPFS_API": engines.ipfs,
}
# Intervals for a laptop. The environment has priority.
_PACE = {
    "ZOO_AUCTION_INTERVAL_SECONDS": "1",
    "ZOO_SWEEP_INTERVAL_SECONDS": "1",
    "ZOO_CHAIN_POLL_SECONDS": engines.BLOCK_SECONDS,
    "ZOO_WINDOW_SECONDS": "1",
    "ZOO_SETTLEMENT_INTERVAL_SECONDS": "20",
    "ZOO_RECONCILE_SECONDS": "10",
    "ZOO_LEASE_SECONDS": "8",
    "ZOO_HEARTBEAT_TIMEOUT_SECONDS": "10",
    "ZOO_ROUND_DEADLINE_SECONDS": "120",
    "ZOO_LOG_JSON": "false",
    "ZOO_WEBHOOKS_TO_PRIVATE_ADDRESSES": "true",  # API users and webhook receivers are on this machine
}
# One thread each: the nodes share this machine, and results must not depend on its number of cores.
_SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Two glibc heaps for all threads: a thread reuses memory that another thread has freed.
_PYTHON = {**_SINGLE_THREADED, "MALLOC_ARENA_MAX": "2"}
SLOW_NODE = "provider-2"
DELAYED_NODE = "provider-4"
ADVERSARY_PRICE = "1.9"  # ZEN per GPU-hour, below every honest ask
USER_ZEN = 1_000_000
BOND_ZEN = 1_000  # the operator's, for acknowledgements
CHALLENGER_ZEN = 1_000  # the market's, for ten open disputes
NODE_ZEN = 50_000  # covers the stake of every tier
HONEST_PRICES = ("2.0", "2.05", "2.1", "2.15", "2.2")


def prepare(directory: StateDirectory, state: State) -> None:
    """Set ports, secrets and the market's settings. Ports of the last run stay if they are free.

    Raises:
        DevnetError: the environment has an IPFS node without its gateway.
    """
    if os.environ.get("ZOO_IPFS_API") and not os.environ.get("ZOO_GATEWAY_URL"):
        raise DevnetError(
            "devnet-gateway-missing",
            "ZOO_GATEWAY_URL is missing, but ZOO_IPFS_API is set",
            remedy="Set ZOO_GATEWAY_URL to the IPFS node's gateway, such as http://127.0.0.1:8080.",
        )
    for name in _PORTS:
        if name not in state.ports or not port_is_free(state.ports[name]):
            state.ports[name] = free_port(state.ports.values())
    state.database_password = state.database_password or secrets.token_hex(16)
    local = {name: f"http://{engines.HOST}:{port}" for name, port in state.ports.items()}
    settings = {
        **_PACE,
        **state.options.pace,
        "ZOO_NETWORK": "devnet",
        "ZOO_DATABASE_URL": engines.postgres_url(state),
        "ZOO_REDIS_URL": f"redis://{engines.HOST}:{state.ports['valkey']}/0",
        "ZOO_RPC_URL": local["anvil"],
        "ZOO_IPFS_API": local["ipfs"],
        "ZOO_GATEWAY_URL": local["gateway"],
        "ZOO_DEPLOYMENT_FILE": str(directory.deployment_file),
        "ZOO_OPERATOR_KEY": _wallets(state).operator.private_key,
        "ZOO_ACKNOWLEDGER_KEY": _wallets(state).acknowledger.private_key,
        "ZOO_CHALLENGER_KEY": _wallets(state).challenger.private_key,
        "ZOO_ADMINS": _wallets(state).admin.address,
        "ZOO_DOMAIN": f"{engines.HOST}:{state.ports['api']}",
        "ZOO_PUBLIC_URL": local["api"],
    }
    state.settings = {name: os.environ.get(name) or value for name, value in settings.items()}


def build(directory: StateDirectory, state: State) -> list[Part]:
    """Return all parts by dependency, without engines that the environment replaces."""
    parts = [
        part
        for variable, engine in _ENGINES.items()
        if not os.environ.get(variable)
        for part in engine(directory, state)
    ]
    market = {**state.settings, **_PYTHON}

    def needs(*names: str) -> tuple[str, ...]:
        own = {part.name for part in parts}
        return tuple(name for name in names if name in own)

    python = [sys.executable, "-m"]
    api = [*python, "market.server", "--host", engines.HOST, "--port", str(state.ports["api"]), "--stop-seconds", "2"]
    celery = [*python, "celery", "--app"]
    worker = [*celery, "worker.main", "worker", "--pool", "threads", "--concurrency", "4"]
    quiet = ["--without-gossip", "--without-mingle"]
    worker += ["--queues", "celery", *quiet]
    webhooks = [*celery, "worker.webhooks", "worker", "--queues", "webhooks"]
    webhooks += ["--hostname", "webhooks@%h", "--pool", "threads", "--concurrency", "1", *quiet]
    beat = [*celery, "worker.beat", "beat", "--schedule", str(directory.path("beat")), "--pidfile", ""]
    ready = f"{api_url(state)}/readyz"
    parts += [
        Part("migrate", [*python, "alembic", "upgrade", "head"], market, needs("postgres")),
        Part(
            "deploy", [*python, "market.chain.contracts.deploy", *_roles_and_allocations(state)], market, needs("anvil")
        ),
    ]
    deployed = needs("migrate", "deploy", "valkey", "ipfs")
    parts += [
        Part("api", api, market, deployed, ready=lambda: engines.http_answers(ready), layer=1),
        Part("worker", worker, market, deployed, ready=lambda: True, layer=1),
        Part("webhooks", webhooks, market, deployed, ready=lambda: True, layer=1),
        Part("beat", beat, market, deployed, ready=lambda: True, layer=1),
    ]
    return parts + _nodes(directory, state)


def _roles_and_allocations(state: State) -> list[str]:
    wallets = _wallets(state)
    holders = {
        wallets.user: USER_ZEN,
        wallets.challenger: CHALLENGER_ZEN,
        **dict.fromkeys([*wallets.providers, *wallets.verifiers], NODE_ZEN),
    }
    allocations = [word for one, zen in holders.items() for word in ("--allocate", f"{one.address}={zen}")]
    roles = ["--admin", wallets.treasury.address, "--guardian", wallets.treasury.address]
    return [*roles, "--acknowledger", wallets.acknowledger.address, "--bond", str(BOND_ZEN), *allocations]


def _nodes(directory: StateDirectory, state: State) -> list[Part]:
    wallets = _wallets(state)
    parts = []
    for index, wallet in enumerate(wallets.providers):
        name = f"provider-{index + 1}"
        if state.options.cheat and index == 0:
            command = f"zoo_compute.devnet.adversaries.adversary --attack {state.options.cheat_kind}"
            command += f" --processes {state.options.processes}"
            parts.append(_node(directory, state, wallet, name, command, ADVERSARY_PRICE))
        else:
            price = HONEST_PRICES[index % len(HONEST_PRICES)]
            command = "zoo_compute node run --role provider"
            if state.options.slow_link_mbps is not None and name == SLOW_NODE:
                command += f" --link-mbps {state.options.slow_link_mbps}"
            if state.options.held_up_from is not None and name == DELAYED_NODE:
                command = f"zoo_compute.devnet.adversaries.delayed_upload --from-round {state.options.held_up_from}"
            node = _node(directory, state, wallet, name, command, price)
            # Asks below the reserve rank by time. The last honest node joins later, so that the adversary gets work.
            is_last = index == len(wallets.providers) - 1
            if state.options.cheat and (is_last or directory.away(name).exists()):
                node = replace(node, needs=(*node.needs, "provider-1"), joins_later=True)
            parts.append(node)
    for index, wallet in enumerate(wallets.verifiers):
        command = "zoo_compute node run --role verifier"
        parts.append(_node(directory, state, wallet, f"verifier-{index + 1}", command, "0"))
    return parts


def _node(
    directory: StateDirectory, state: State, wallet: accounts.DevAccount, name: str, command: str, price: str
) -> Part:
    # nice: the market has priority on this shared machine.
    argv = ["nice", "-n", "5", sys.executable, "-m", *command.split(), "--api-url", api_url(state), "--name", name]
    argv += ["--state-dir", str(directory.node(name)), "--min-price", price, "--claim-seconds", "2"]
    environment = {"ZOO_PRIVATE_KEY": wallet.private_key, **_PYTHON}
    # A node starts before the API: it loads its libraries and retries until the API answers.
    has_joined = partial(_has_joined, directory, state, wallet.address)
    away = directory.away(name)
    return Part(name, argv, environment, ("migrate", "deploy"), ready=has_joined, layer=2, away=away)


def _has_joined(directory: StateDirectory, state: State, address: str) -> bool:
    """Return True for an active or jailed node; verifiers must be listed as referees."""
    document = engines.http_json(f"{api_url(state)}/v1/providers/{address}")
    if document is None or document["status"] != "active" or document["kind"] != "verifier":
        return document is not None and document["status"] in ("active", "jailed")
    disputes = json.loads(directory.deployment_file.read_text())["contracts"]["Disputes"]
    return engines.contract_affirms(state.settings["ZOO_RPC_URL"], disputes, "isReferee(address)", address)


def api_url(state: State) -> str:
    """Return the base URL of the market's API."""
    return f"http://{engines.HOST}:{state.ports['api']}"


def _wallets(state: State) -> accounts.DevAccounts:
    return accounts.derive(state.options.providers, state.options.verifiers)


def info(directory: StateDirectory, state: State) -> dict[str, Any]:
    """Return addresses, development keys and processes for other programs."""
    deployment = json.loads(directory.deployment_file.read_text())
    wallets = _wallets(state)
    settings = state.settings

    names = ("operator", "acknowledger", "challenger", "admin", "treasury", "user")
    return {
        "api_url": api_url(state),
        "rpc_url": settings["ZOO_RPC_URL"],
        "ipfs_url": settings["ZOO_GATEWAY_URL"],
        "chain_id": deployment["chain_id"],
        "contracts": deployment["contracts"],
        "accounts": {
            **{name: asdict(getattr(wallets, name)) for name in names},
            "providers": [asdict(account) for account in wallets.providers],
            "verifiers": [asdict(account) for account in wallets.verifiers],
        },
        "ipfs_api_url": settings["ZOO_IPFS_API"],
        "database_url": settings["ZOO_DATABASE_URL"],
        "redis_url": settings["ZOO_REDIS_URL"],
        "state_directory": str(directory.root),
        "pids": {name: part.identity.pid for name, part in state.parts.items()},
        "start_seconds": state.start_seconds,
    }
