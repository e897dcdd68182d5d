"""The embedded engines under the supervisor: start, kill -9 without data loss, stop."""

import json
import os
import signal
import threading
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis
from kit.waiting import wait_until

from zoo_compute.devnet import engines, stack
from zoo_compute.devnet.state import State, StateDirectory
from zoo_compute.devnet.supervisor import Supervisor, stop_leftovers


class Engines:
    def __init__(self, directory: StateDirectory, state: State) -> None:
        stop_leftovers(state)
        stack.prepare(directory, state)
        makers = (engines.postgres, engines.valkey, engines.anvil, engines.ipfs)
        self.state = state
        self.supervisor = Supervisor(directory, state, [part for make in makers for part in make(directory, state)])
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self.supervisor.run, args=(lambda _: self._ready.set(),))
        self._thread.start()

    def wait(self) -> None:
        assert self._ready.wait(120)

    def pid(self, part: str) -> int:
        return self.state.parts[part].identity.pid

    def end(self) -> None:
        self.supervisor.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def rpc(self, method: str, *params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.state.settings["ZOO_RPC_URL"], body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["result"]

    def sql(self, statement: str) -> Any:
        with psycopg.connect(self.state.settings["ZOO_DATABASE_URL"]) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    for name in (*stack._ENGINES, "ZOO_GATEWAY_URL"):
        monkeypatch.delenv(name, raising=False)
    closed_to_others = tmp_path / "home"
    closed_to_others.mkdir(mode=0o700)
    directory = StateDirectory(closed_to_others / ("devnet-with-a-name-longer-than-a-socket-path" * 3))
    directory.create()
    return directory


@pytest.mark.long
def test_engines_keep_data_through_kill_and_stop(directory: StateDirectory) -> None:
    first = Engines(directory, State())
    try:
        first.wait()
        first.sql("CREATE TABLE kept (n int)")
        first.sql("INSERT INTO kept VALUES (7)")
        redis.Redis.from_url(first.state.settings["ZOO_REDIS_URL"]).ping()
        address = first.rpc("eth_accounts")[5]
        sent = first.rpc("eth_sendTransaction", {"from": address, "to": address, "value": "0x7"})
        wait_until(lambda: first.rpc("eth_getTransactionReceipt", sent) is not None)
        for _ in range(2):  # the first write may have begun earlier
            _until_written(directory.path("chain.json"))
        pids = [first.pid(name) for name in ("postgres", "valkey", "anvil", "ipfs")]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: {"postgres", "valkey", "anvil", "ipfs"} <= set(first.state.parts))
        wait_until(lambda: set(pids).isdisjoint(part.identity.pid for part in list(first.state.parts.values())))
        wait_until(lambda: engines._postgres_answers(engines.postgres_url(first.state)))
        wait_until(lambda: engines.rpc_answers(first.state.settings["ZOO_RPC_URL"]))
        assert first.sql("SELECT n FROM kept") == [(7,)]
        assert first.rpc("eth_getTransactionReceipt", sent)["status"] == "0x1"
    finally:
        first.end()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not directory.load().parts  # type: ignore[union-attr]

    again = Engines(directory, directory.load() or State())
    try:
        again.wait()
        assert again.state.ports == first.state.ports
        assert again.sql("SELECT n FROM kept") == [(7,)]
        assert again.rpc("eth_getTransactionReceipt", sent)["status"] == "0x1"
    finally:
        again.end()


def _until_written(path: Path) -> None:
    before = path.stat().st_mtime_ns if path.exists() else 0
    wait_until(lambda: path.exists() and path.stat().st_mtime_ns > before)
