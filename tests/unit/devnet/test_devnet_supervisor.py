"""The supervisor with real processes: order, readiness, restarts, stop, leftovers."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kit.errors import raises_code
from kit.waiting import wait_until

from market.server import configuration
from market.settings import Settings
from zoo_compute.base.errors import DevnetError
from zoo_compute.devnet import control, stack
from zoo_compute.devnet.parts import Part
from zoo_compute.devnet.processes import Identity, free_port, stop
from zoo_compute.devnet.state import Options, Started, State, StateDirectory
from zoo_compute.devnet.supervisor import Supervisor, stop_leftovers

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


class Running:
    def __init__(self, directory: StateDirectory, parts: list[Part]) -> None:
        directory.create()
        self.directory = directory
        self.supervisor = Supervisor(directory, State(), parts)
        self.ready = threading.Event()
        self.failure: DevnetError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.supervisor.run(lambda _state: self.ready.set())
        except DevnetError as error:
            self.failure = error

    def pid(self, part: str) -> int | None:
        state = self.directory.load()
        started = state.parts.get(part) if state else None
        return started.identity.pid if started else None

    def end(self) -> None:
        self.supervisor.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "devnet")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEPER)
    yield process
    process.kill()
    process.wait()


def test_parts_start_by_dependency_and_stop_in_reverse(directory: StateDirectory, tmp_path: Path) -> None:
    order = tmp_path / "order"
    note = "import signal,sys\nname, path = sys.argv[1:]\nopen(path, 'a').write('+' + name + ' ')\n"
    serve = note + "def end(*_):\n  open(path, 'a').write('-' + name + ' ')\n  sys.exit()\n"
    serve += "signal.signal(signal.SIGTERM, end)\nopen(path + name, 'w')\nsignal.pause()"

    def service(name: str, *needs: str) -> Part:
        argv = [sys.executable, "-c", serve, name, str(order)]
        return Part(name, argv, needs=needs, ready=lambda: Path(str(order) + name).exists(), layer=len(needs))

    task = Part("task", [sys.executable, "-c", note, "task", str(order)], needs=("first",))
    running = Running(directory, [service("first"), task, service("last", "task")])
    assert running.ready.wait(20)
    pids = [running.pid("first"), running.pid("last")]
    assert running.pid("task") is None
    running.end()
    assert order.read_text() == "+first +task +last -last -first "
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    state = directory.load()
    assert state is not None
    assert (state.phase, state.parts) == ("stopped", {})


def test_held_part_is_restarted_only_when_allowed(directory: StateDirectory) -> None:
    away = directory.away("service")
    other = Part("other", SLEEPER, ready=lambda: True)
    running = Running(directory, [Part("service", SLEEPER, ready=lambda: True, away=away), other])
    try:
        assert running.ready.wait(20)
        first, second = running.pid("service"), running.pid("other")
        assert first is not None
        assert second is not None
        away.touch()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: running.pid("service") is None)
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: running.pid("other") not in (None, second))  # it might have been started as well by then
        assert running.pid("service") is None
        away.unlink()
        wait_until(lambda: running.pid("service") is not None)
    finally:
        running.end()


def test_crashed_part_is_restarted(directory: StateDirectory) -> None:
    running = Running(directory, [Part("service", SLEEPER, ready=lambda: True)])
    try:
        assert running.ready.wait(20)
        first = running.pid("service")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: running.pid("service") not in (None, first))
    finally:
        running.end()


def test_failed_part_start_fails_stack_and_shows_log(directory: StateDirectory) -> None:
    broken = Part("broken", [sys.executable, "-c", "raise SystemExit('no such setting')"])
    running = Running(directory, [Part("service", SLEEPER, ready=lambda: True), broken])
    wait_until(lambda: running.failure is not None)
    running.end()
    assert running.failure is not None
    assert running.failure.code == "devnet-part-failed"
    assert "no such setting" in running.failure.detail
    state = directory.load()
    assert state is not None
    assert state.phase == "failed"
    assert not state.parts


def test_leftovers_are_stopped_except_reused_pid(sleeper: subprocess.Popen[bytes]) -> None:
    identity = Identity.of(sleeper.pid)
    assert identity is not None
    reused = Identity(sleeper.pid, identity.create_time - 1000)
    state = State(parts={"old": Started(reused, signal.SIGTERM, 0)})
    assert stop_leftovers(state) == []
    assert sleeper.poll() is None
    state = State(parts={"old": Started(identity, signal.SIGTERM, 0)})
    assert stop_leftovers(state) == ["old"]
    assert sleeper.wait(5) is not None


def test_stop_kills_process_ignoring_signal_with_children() -> None:
    script = "import signal,subprocess,sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    script += "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    script += "print(child.pid, flush=True)\nchild.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        identity = Identity.of(parent.pid)
        assert identity is not None
        stop([(identity, signal.SIGTERM)], grace_seconds=0.5)
        assert parent.wait(5) is not None
        wait_until(lambda: (found := Identity.of(child)) is None or found.process() is None)


def test_second_supervisor_is_refused(directory: StateDirectory) -> None:
    with directory.lock() as first, StateDirectory(directory.root).lock() as second:
        assert first
        assert not second


def test_state_round_trips_and_damaged_file_is_named(directory: StateDirectory) -> None:
    directory.create()
    identity = Identity(1, 2.5)
    state = State(Options(4, 1, True), {"api": 1}, {"api": Started(identity, 15, 3)}, identity, "ready")
    directory.save(state)
    assert directory.load() == state
    assert directory.path("state.json").stat().st_mode & 0o077 == 0
    directory.path("state.json").write_text("{")
    with raises_code(DevnetError, "devnet-state-damaged"):
        directory.load()


def test_free_port_is_usable_and_avoids_taken_ones() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert free_port({port + 1}) not in (port, port + 1)


def test_reset_refuses_non_devnet_directory(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with raises_code(DevnetError, "devnet-unknown-directory"):
        control.reset(StateDirectory(tmp_path))
    assert (tmp_path / "thesis.txt").exists()


def test_info_and_down_work_without_devnet(directory: StateDirectory) -> None:
    with raises_code(DevnetError, "devnet-not-running"):
        control.info(directory)
    assert control.down(directory) is False


def test_engine_named_by_environment_is_not_started(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_REDIS_URL", "redis://elsewhere:6379/0")
    monkeypatch.setenv("ZOO_SWEEP_INTERVAL_SECONDS", "7")
    for name in ("ZOO_DATABASE_URL", "ZOO_RPC_URL", "ZOO_IPFS_API"):
        monkeypatch.delenv(name, raising=False)
    directory.create()
    state = State(Options(providers=2, verifiers=1, cheat=True))
    stack.prepare(directory, state)
    parts = {part.name: part for part in stack.build(directory, state)}
    assert "valkey" not in parts
    market = {"api", "worker", "webhooks", "beat"}
    assert {"postgres", "anvil", "ipfs", *market, "provider-1", "provider-2", "verifier-1"} <= set(parts)
    assert "valkey" not in parts["api"].needs
    assert all(set(part.needs) <= set(parts) for part in parts.values())
    assert state.settings["ZOO_REDIS_URL"] == "redis://elsewhere:6379/0"
    assert parts["api"].env["ZOO_SWEEP_INTERVAL_SECONDS"] == "7"
    assert configuration(parts["api"].argv[3:]).port == state.ports["api"]  # the server with bounded connections
    assert "zoo_compute.devnet.adversaries.adversary" in parts["provider-1"].argv
    assert "provider-1" in parts["provider-2"].needs  # the spare joins after the dishonest provider
    assert Settings(**{name.removeprefix("ZOO_").lower(): value for name, value in state.settings.items()})


def test_one_node_has_requested_slow_link(directory: StateDirectory) -> None:
    directory.create()
    state = State(Options(providers=3, verifiers=1, slow_link_mbps=2.5))
    stack.prepare(directory, state)
    held = {part.name: part.argv for part in stack.build(directory, state) if "--link-mbps" in part.argv}
    assert list(held) == [stack.SLOW_NODE]
    argv = held[stack.SLOW_NODE]
    assert argv[argv.index("--link-mbps") + 1] == "2.5"


def test_ipfs_node_needs_its_gateway(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_IPFS_API", "http://elsewhere:5001")
    monkeypatch.delenv("ZOO_GATEWAY_URL", raising=False)
    with raises_code(DevnetError, "devnet-gateway-missing"):
        stack.prepare(directory, State())
