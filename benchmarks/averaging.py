"""Averaging of 40 MB among four processes: our round and hivemind's, both over loopback.

``python -m benchmarks.averaging --json``. The peer needs ``make bench-peers`` once. Without it its rows are missing,
and the command fails at the end, except with ``--quick``.

A round is timed from the moment that all four hold their vector of 10.8 million fp32 until all four have applied the
mean. MB/s are those vectors' bytes over that time. Our round encodes, uploads to the embedded store, aggregates exactly
and robustly in another process, downloads and applies. Lines on pipes replace the market's calls.

``ours_mb_s`` uses a job's default payload. ``ours_8bit_mb_s`` sends every value in eight bits in both directions, like
hivemind's ``8bit``. Their errors are not comparable: ``error`` is mostly error feedback, which later rounds send.
``ours_8bit_error`` is the rounding error, like hivemind's.

A round succeeds if all four processes (three after a kill) end with the same mean of all present payloads. For
hivemind only the group must be complete. A kill happens halfway through the shortest round, in ours halfway through the
shortest upload.
"""

import json
import os
import queue
import signal
import statistics
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
from training_gym.exchange.deadlines import deadline, quorum
from training_gym.spec.config import ModelConfig, TrainingConfig, TrainingSpec

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
        model = ModelConfig(hidden_size=64, num_layers=3)
    else:
        model = ModelConfig(hidden_size=384, num_layers=6, num_heads=6)
    return TrainingSpec(model, _ANY_CID, TrainingConfig(**settings))  # type: ignore[arg-type]


class Group(ABC):
    """Four processes that average their vectors."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.members: dict[int, Actor] = {}

    def _started(self, actor: Actor) -> dict[str, Any]:
        """Return its first answer; it ends with the group."""
        self._stack.callback(actor.kill)
        ready = actor.answer(_START_SECONDS)
        if ready is None:
            raise RuntimeError(f"{type(self).__name__}: a process ended during start-up")
        return ready

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

    def __init__(self, stack: ExitStack, spec: TrainingSpec, store: dict[str, str]) -> None:
        super().__init__(stack)
        self._settings = json.dumps({"spec": spec.to_dict(), **store})
        self._heard = threading.Event()
        self.payload_bytes = self.update_bytes = 0
        self.aggregator = self._run("aggregator")
        self._arrivals: list[float] = []

    def _run(self, role: str) -> Actor:
        actor = Actor([sys.executable, "-m", "benchmarks.training.averaging_round", role, self._settings], self._heard)
        self._started(actor)
        return actor

    def _start(self, slot: int) -> Actor:
        return self._run("worker")

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

    def __init__(self, stack: ExitStack, size: int, compression: str) -> None:
        super().__init__(stack)
        prefix = f"benchmark{time.time_ns()}"
        self._command = [str(PEER_PYTHON), str(PEER_SCRIPT), str(size), compression, prefix]
        self._shortest = 60.0  # seconds
        self._addresses: dict[int, list[str]] = {}

    def _start(self, slot: int) -> Actor:
        living = [address for peer in self.members for address in self._addresses[peer]]
        actor = Actor([*self._command, *living])
        self._addresses[slot] = self._started(actor)["addresses"]
        return actor

    def round(self, *, kill: int | None = None) -> tuple[float, float | None]:
        if not self._is_prepared():
            return 0.0, None
        started = time.perf_counter()
        for peer in self.members.values():
            peer.send("round", timeout=30.0)
        if kill is not None:
            time.sleep(0.5 * self._shortest)
            self.members.pop(kill).kill()
        answers = [peer.answer() for peer in self.members.values()]
        took = time.perf_counter() - started
        self._shortest = min(self._shortest, took)
        if any(one is None or one["group"] < len(self.members) for one in answers):
            return took, None
        return took, max((one["error"] for one in self._errors(list(self.members))), default=None)


class Series:
    """Results of the rounds of one kind."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.errors: list[float] = []
        self.failed = self.failed_with_a_kill = 0

    def speeds(self, size: int) -> list[float]:
        """Return the MB/s of each successful round."""
        return [4e-6 * size / seconds for seconds in self.seconds]


def _series(name: str, group: Group, rounds: int, kills: int) -> Series:
    """Run undisturbed rounds, then rounds with one killed process each."""
    seen = Series()
    for number in range(rounds + 1):
        seconds, error = group.round()
        if number == 0:  # warm-up; peers find each other
            continue
        if error is None:
            seen.failed += 1
        else:
            seen.seconds.append(seconds)
            seen.errors.append(error)
        progress(f"{name}: round {number}: {seconds:.2f} s, error {error}")
    for number in range(kills):
        if number:
            group.round()  # lets the replacement join
        seconds, error = group.round(kill=number % WORKERS)
        seen.failed_with_a_kill += error is None
        progress(f"{name}: kill {number}: {seconds:.2f} s, error {error}")
    return seen


def _rows(prefix: str, seen: Series, size: int, rounds: int, kills: int, note: str) -> list[Row]:
    rows = []
    rows.append(row(f"{prefix}_mb_s", "MB/s", seen.speeds(size) or [0.0], note))  # 0: every round failed
    rows.append(row(f"{prefix}_error", "relative", seen.errors or [1.0], "L2, against the exact mean; 1: none applied"))
    rows.append(row(f"{prefix}_failed_rounds", "rounds", [seen.failed], f"of {rounds}"))
    rows.append(row(f"{prefix}_failed_rounds_with_a_kill", "rounds", [seen.failed_with_a_kill], f"of {kills}"))
    return rows


def measure(quick: bool) -> list[Row]:
    """Return the rows; one repetition is one round."""
    return measure_rounds(quick, rounds=1 if quick else 100, kills=1 if quick else 10)


def measure_rounds(quick: bool, rounds: int, kills: int) -> list[Row]:
    """Do what :func:`measure` does, with these numbers of rounds of each kind."""
    rows: list[Row] = []
    speeds: dict[str, float] = {}
    size = specification(quick, DENSE).num_parameters()
    for name, settings, what in (
        ("ours", PLAIN, "the default payload, both ways"),
        ("ours_8bit", DENSE, "all values in 8 bits, both ways"),
    ):
        with ExitStack() as stack:
            group = OurGroup(stack, specification(quick, settings), stack.enter_context(running_store()))
            seen = _series(name, group, rounds, kills)
            note = f"{what}; {group.payload_bytes / 1e6:.2f} MB up, {group.update_bytes / 1e6:.2f} MB down"
            rows += _rows(name, seen, size, rounds, kills, note)
            speeds[name] = statistics.median(seen.speeds(size) or [0.0])
    if absent := missing_results():
        progress(absent)
        return _by_their_names([replace(found, note=f"{found.note}; {absent}") for found in rows])
    for compression in COMPRESSIONS:
        name = f"hivemind_{compression}"
        with ExitStack() as stack:
            seen = _series(name, PeerGroup(stack, size, compression), rounds, kills)
            rows += _rows(name, seen, size, rounds, kills, "with its matchmaking")
            speeds[name] = statistics.median(seen.speeds(size) or [0.0])
    best = max(COMPRESSIONS, key=lambda compression: speeds[f"hivemind_{compression}"])
    note = f"of medians; hivemind's best here is {best}"
    rows.append(row("ratio_to_best", "ratio", [speeds["ours"] / speeds[f"hivemind_{best}"]], note))
    rows.append(row("ours_8bit_ratio_to_best", "ratio", [speeds["ours_8bit"] / speeds[f"hivemind_{best}"]], note))
    return _by_their_names(rows)


def missing_results() -> str:
    """Return the missing measurements and the reason; empty if complete."""
    return "" if PEER_PYTHON.exists() else "hivemind and the ratio to it are left out: make bench-peers was not run"


def _by_their_names(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; those of our default payload lose their prefix, as the row names require."""
    return [replace(found, name=found.name.removeprefix("ours_")) if found.name in _OURS else found for found in rows]


if __name__ == "__main__":
    run("averaging", measure, lacks=missing_results)
