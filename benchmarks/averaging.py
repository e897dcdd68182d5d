"""Averaging of 40 MB among four processes over slow links: our round and hivemind's.

``python -m benchmarks.averaging --json``. The peer needs ``make bench-peers`` once. Without it its rows are missing,
and the command fails at the end, except with ``--quick``.

A round is timed from the moment that all four hold their vector of 10.8 million fp32 until all four have applied the
mean. MB/s are those vectors' bytes over that time. Our round encodes, uploads to the embedded store, aggregates exactly
and robustly in another process, downloads and applies. Lines on pipes replace the market's calls.

Each member has a link of 100/20 Mb/s down/up, like a node in ``benchmarks.wan``. The round trip is 80 ms between two
peers, and between a worker and the storage, where the aggregator is. Methods take their rounds in turn.

``ratio_to_best`` is the time of hivemind's fastest round over ours, turn by turn, at equal error. Ours sends all values
in eight bits in both directions (``ours_8bit``), with an error of the same kind as hivemind's. ``ours_mb_s`` uses a
job's default payload. It has no ratio: its ``error`` is mostly error feedback, which later rounds send.

A round succeeds if all four processes (three after a kill) end with the same mean of all present payloads. For
hivemind only the group must be complete. A kill happens halfway through the shortest round, in ours halfway through the
shortest upload.
"""

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import Row, progress, row, run
from benchmarks.simulator.shaping import ShapedLink, shaping
from training_gym.exchange.deadlines import deadline, quorum
from training_gym.exchange.round_time import MBIT, REFERENCE_LINK
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from zoo_compute.devnet.processes import free_port

ROOT = Path(__file__).parents[1]
PEER_PYTHON = ROOT / ".peers" / "hivemind" / "bin" / "python"
PEER_SCRIPT = ROOT / "benchmarks" / "peers" / "hivemind_peer.py"
WORKERS = 4
COMPRESSIONS = ("none", "fp16", "8bit")
PLAIN: dict[str, float] = {"outer_learning_rate": 1.0, "outer_momentum": 0.0}
"""Outer step that applies the mean unchanged, like the peer."""
DENSE = PLAIN | {"top_k": 4096, "value_bits": 8, "down_top_k": 4096, "down_value_bits": 8}
_ANY_CID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
_PATIENCE_SECONDS = 60.0
_START_SECONDS = 300.0
_ROUND_SECONDS = 120.0
"""Timeout of the peer's rounds; without compression one takes half a minute."""
_OURS = {"ours_error", "ours_failed_rounds", "ours_failed_rounds_with_a_kill"}


class Actor:
    """Process that answers JSON lines; sets ``heard`` at each answer and at its end."""

    def __init__(self, command: Sequence[str], heard: threading.Event | None = None) -> None:
        self._heard = heard or threading.Event()
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
            self._heard.set()
        self._answers.put(None)
        self._heard.set()

    def send(self, do: str, **arguments: Any) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = _PATIENCE_SECONDS) -> dict[str, Any] | None:
        """Return the next answer, or None after a timeout or the end of the process."""
        try:
            return self._answers.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None

    def kill(self) -> None:
        """Kill it and its forks (hivemind's workers), as a crash of its machine would."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def running_store() -> Iterator[dict[str, str]]:
    """Run the embedded store as a process; yield its two addresses."""
    with tempfile.TemporaryDirectory() as directory:
        ports = Path(directory, "ports")
        command = [sys.executable, "-m", "zoo_compute.devnet.ipfs_store", "--directory", f"{directory}/data"]
        process = subprocess.Popen([*command, "--port-file", str(ports)], cwd=ROOT)
        try:
            while not ports.exists():
                if process.poll() is not None:
                    raise RuntimeError("the store ended during start-up")
                time.sleep(0.02)
            found = json.loads(ports.read_text())
            urls = {name: f"http://127.0.0.1:{found[f'{name}_port']}" for name in ("rpc", "gateway")}
            yield urls
        finally:
            process.terminate()
            process.wait()


def specification(quick: bool, settings: dict[str, float]) -> TrainingSpec:
    """Return a model of 10.5 million parameters (quick: 0.2 million) with these payloads."""
    if quick:
        model = read_model({"hidden_size": 64, "num_hidden_layers": 3})
    else:
        model = read_model({"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6})
    return TrainingSpec(model, _ANY_CID, TrainingConfig(**settings))  # type: ignore[arg-type]


class Group(ABC):
    """Four processes that average their vectors, each behind a link of its own."""

    def __init__(self, stack: ExitStack, loop: asyncio.AbstractEventLoop) -> None:
        self._stack, self._loop = stack, loop
        self.members: dict[int, Actor] = {}

    def _started(self, actor: Actor) -> dict[str, Any]:
        """Return its first answer; it ends with the group."""
        self._stack.callback(actor.kill)
        ready = actor.answer(_START_SECONDS)
        if ready is None:
            raise RuntimeError(f"{type(self).__name__}: a process ended during start-up")
        return ready

    def _link(self, round_trip_seconds: float) -> ShapedLink:
        rates = REFERENCE_LINK.up_mbps * MBIT, REFERENCE_LINK.down_mbps * MBIT
        return ShapedLink(self._loop, *rates, round_trip_seconds)

    @abstractmethod
    def _start(self, slot: int) -> Actor:
        """Start the member of a slot."""

    @abstractmethod
    def round(self, *, kill: int | None = None) -> tuple[float, float | None]:
        """Return (seconds, error; None if the round failed); ``kill`` ends a member halfway."""

    def _is_prepared(self) -> bool:
        """Start missing members, and set all vectors; False if a member does not answer."""
        for slot in range(WORKERS):
            if slot not in self.members:
                self.members[slot] = self._start(slot)
        for slot, member in self.members.items():
            member.send("prepare", seed=slot + 1)
        return all(member.answer() is not None for member in self.members.values())

    def _errors(self, slots: Sequence[int]) -> list[dict[str, Any]]:
        """Return the members' answers on the error of these slots' mean; empty if one is missing."""
        found = []
        for member in self.members.values():
            member.send("error", seeds=[slot + 1 for slot in sorted(slots)])
            found.append(member.answer())
        answers = [one for one in found if one is not None]
        return answers if len(answers) == len(found) else []


class OurGroup(Group):
    """Four workers and an aggregator around a store."""

    def __init__(self, stack: ExitStack, loop: asyncio.AbstractEventLoop, spec: TrainingSpec) -> None:
        super().__init__(stack, loop)
        self._spec, self._store = spec.to_dict(), stack.enter_context(running_store())
        self._heard = threading.Event()
        self.payload_bytes = self.update_bytes = 0
        self.aggregator = self._run("aggregator", self._store)
        self._arrivals: list[float] = []

    def _run(self, role: str, store: dict[str, str]) -> Actor:
        settings = json.dumps({"spec": self._spec, **store})
        actor = Actor([sys.executable, "-m", "benchmarks.training.averaging_round", role, settings], self._heard)
        self._started(actor)
        return actor

    def _start(self, slot: int) -> Actor:
        link = self._link(REFERENCE_LINK.round_trip_seconds)
        return self._run("worker", {name: link.to(url) for name, url in self._store.items()})

    def round(self, *, kill: int | None = None) -> tuple[float, float | None]:
        if not self._is_prepared():
            return 0.0, None
        started = time.perf_counter()
        for worker in self.members.values():
            worker.send("upload")
        if kill is not None:
            time.sleep(0.5 * min(self._arrivals))  # the worker encodes or uploads
            self.members.pop(kill).kill()
        delivered = self._collect(started, WORKERS)
        if len(delivered) < quorum(WORKERS):
            return time.perf_counter() - started, None
        self.aggregator.send("close")
        closed = self.aggregator.answer()
        if closed is None:
            return time.perf_counter() - started, None
        for slot, worker in self.members.items():
            if slot not in delivered:
                worker.answer()  # its upload was late
            worker.send("apply", cid=closed["cid"])
        applied = [worker.answer() for worker in self.members.values()]
        seconds = time.perf_counter() - started
        if None in applied or not sorted(closed["included"]) == sorted(delivered) == sorted(self.members):
            return seconds, None
        self.update_bytes = applied[0]["bytes"] if applied[0] else 0
        errors = self._errors(delivered)
        if len({one["digest"] for one in errors}) != 1:
            return seconds, None
        return seconds, max(float(one["error"]) for one in errors)

    def _collect(self, started: float, expected: int) -> list[int]:
        """Return the slots of received payloads: all, or a quorum after the deadline."""
        limit = deadline(self._arrivals, min_slack_seconds=10.0) if self._arrivals else _PATIENCE_SECONDS
        delivered: list[int] = []
        waiting = dict(self.members)
        while waiting and len(delivered) < expected:
            self._heard.wait(0.1)
            self._heard.clear()
            for slot, worker in list(waiting.items()):
                found = worker.answer(0.0)
                if found is not None:
                    waiting.pop(slot)
                    self.payload_bytes = found["bytes"]
                    self.aggregator.send("take", slot=slot, cid=found["cid"])
                    delivered.append(slot)
                    self._arrivals.append(time.perf_counter() - started)
            elapsed = time.perf_counter() - started
            if elapsed > _PATIENCE_SECONDS or (len(delivered) >= quorum(expected) and elapsed > limit):
                break
        return [slot for slot in delivered if self.aggregator.answer() is not None]


class PeerGroup(Group):
    """Four hivemind peers; a kill happens during matchmaking or the exchange."""

    def __init__(self, stack: ExitStack, loop: asyncio.AbstractEventLoop, size: int, compression: str) -> None:
        super().__init__(stack, loop)
        prefix = f"benchmark{time.time_ns()}"
        self._settings = {"size": size, "compression": compression, "prefix": prefix, "timeout": _ROUND_SECONDS}
        self._shortest = 60.0  # seconds
        self._addresses: dict[int, list[str]] = {}

    def _start(self, slot: int) -> Actor:
        link, port = self._link(REFERENCE_LINK.round_trip_seconds / 2), free_port()
        living = [address for peer in self.members for address in self._addresses[peer]]
        settings = self._settings | {
            "port": port,
            "announced": link.port_to(port, inbound=True),
            # A newcomer connects to all others, so that each connection passes both links.
            "addresses": [_at_port(address, link.port_to(int(address.split("/")[4]))) for address in living],
        }
        actor = Actor([str(PEER_PYTHON), str(PEER_SCRIPT), json.dumps(settings)])
        self._addresses[slot] = self._started(actor)["addresses"]
        return actor

    def round(self, *, kill: int | None = None) -> tuple[float, float | None]:
        if not self._is_prepared():
            return 0.0, None
        started = time.perf_counter()
        for peer in self.members.values():
            peer.send("round")
        if kill is not None:
            time.sleep(0.5 * self._shortest)
            self.members.pop(kill).kill()
        answers = [peer.answer(2 * _ROUND_SECONDS) for peer in self.members.values()]
        took = time.perf_counter() - started
        self._shortest = min(self._shortest, took)
        if any(one is None or one["group"] < len(self.members) for one in answers):
            return took, None
        return took, max((one["error"] for one in self._errors(list(self.members))), default=None)


def _at_port(address: str, port: int) -> str:
    """Return a multiaddress (``/ip4/127.0.0.1/tcp/PORT/p2p/ID``) with another port."""
    return "/".join([*(parts := address.split("/"))[:4], str(port), *parts[5:]])


class Series:
    """Results of the rounds of one method; ``seconds`` has None for each failed one."""

    def __init__(self) -> None:
        self.seconds: list[float | None] = []
        self.errors: list[float] = []
        self.failed_with_a_kill = 0

    def rows(self, prefix: str, size: int, kills: int, note: str) -> list[Row]:
        """Return the rows; ``size`` is the number of values of a vector."""
        speeds = [4e-6 * size / seconds for seconds in self.seconds if seconds]
        of = f"of {len(self.seconds)}"
        return [
            row(f"{prefix}_mb_s", "MB/s", speeds or [0.0], note),  # 0: every round failed
            row(f"{prefix}_error", "relative", self.errors or [1.0], "L2, against the exact mean; 1: none applied"),
            row(f"{prefix}_failed_rounds", "rounds", [len(self.seconds) - len(speeds)], of),
            row(f"{prefix}_failed_rounds_with_a_kill", "rounds", [self.failed_with_a_kill], f"of {kills}"),
        ]


def measure(quick: bool) -> list[Row]:
    """Return the rows; one repetition is one round."""
    rounds, kills = (1, 1) if quick else (20, 5)
    spec = specification(quick, DENSE)
    size, rows = spec.num_parameters(), []
    with ExitStack() as stack:
        loop = stack.enter_context(shaping())
        ours = {"ours": OurGroup(stack, loop, specification(quick, PLAIN)), "ours_8bit": OurGroup(stack, loop, spec)}
        peers = (
            {} if missing_results() else {f"hivemind_{one}": PeerGroup(stack, loop, size, one) for one in COMPRESSIONS}
        )
        groups: dict[str, Group] = {**ours, **peers}
        found = {name: Series() for name in groups}
        for number in range(rounds + 1):
            for name, group in groups.items():
                seconds, error = group.round()
                progress(f"{name}: round {number}: {seconds:.2f} s, error {error}")
                if number:  # before is the warm-up; peers find each other
                    found[name].seconds.append(None if error is None else seconds)
                    found[name].errors += [] if error is None else [error]
        for number in range(kills):
            for name, group in groups.items():
                if number:
                    group.round()  # lets the replacement join
                seconds, error = group.round(kill=number % WORKERS)
                found[name].failed_with_a_kill += error is None
                progress(f"{name}: kill {number}: {seconds:.2f} s, error {error}")
        for name in groups:
            note = "with its matchmaking"
            if name in ours:
                note = f"{ours[name].payload_bytes / 1e6:.2f} MB up, {ours[name].update_bytes / 1e6:.2f} MB down"
            rows += found[name].rows(name, size, kills, note)
    turns = zip(found["ours_8bit"].seconds, *(found[name].seconds for name in peers), strict=True)
    ratios = [
        min(theirs) / mine for mine, *all_theirs in turns if mine and (theirs := [one for one in all_theirs if one])
    ]
    if ratios:
        rows.append(row("ratio_to_best", "ratio", ratios, "hivemind's best of each turn, to ours_8bit"))
    if absent := missing_results():
        progress(absent)
        rows = [replace(one, note=f"{one.note}; {absent}") for one in rows]
    # The row names require that those of our default payload have no prefix.
    return [replace(one, name=one.name.removeprefix("ours_")) if one.name in _OURS else one for one in rows]


def missing_results() -> str:
    """Return the missing measurements and the reason; empty if complete."""
    return "" if PEER_PYTHON.exists() else "hivemind and the ratio to it are left out: make bench-peers was not run"


if __name__ == "__main__":
    run("averaging", measure, lacks=missing_results)
