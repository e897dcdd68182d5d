"""The simulator held against real processes: the same rounds in both, and how far their mean round times differ.

Real are the training, the node's way to its inputs (manifests, updates, slot states), payloads, the embedded store
as a process of its own, the aggregation and the rule that closes a round; every worker is a process behind a slow, far
link of its own (``shaping``). Not there are the market's API and database. One device is slow, one leaves without a
word, and the slow one takes its place. What the simulator is told was measured before, on as many workers without the
link: what a unit takes beyond its steps, what closing a round takes, and the sizes. A transfer's own computing is
taken to be hidden behind the slow link.
"""

import contextlib
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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.corpus import standard_library
from benchmarks.report import Row, progress, row
from benchmarks.simulator.rounds import simulate
from benchmarks.simulator.scenario import Market, Nodes, Scenario, Work
from benchmarks.simulator.shaping import ShapedLink, shaping
from market.jobs.dispatch import DEADLINE_ROUNDS, RoundState
from training_gym import lateness
from training_gym.aggregation import aggregate
from training_gym.checkpoint import CheckpointManifest, initial_checkpoint, load_state, save_state
from training_gym.config import TrainingSpec
from training_gym.data.dataset import DatasetManifest, describe_split
from training_gym.outer import OuterState
from training_gym.profile import CPU
from training_gym.round_time import MBIT, Link
from zoo_compute.gateway import GatewayClient

JOB = "0x" + "ab" * 32
LINK = Link(down_mbps=8.0, up_mbps=4.0, round_trip_seconds=0.08)
PACE, SLOW_PACE = 0.1, 0.4
"""Seconds per inner step."""
STEPS = 20
LEASE_SECONDS, SWEEP_SECONDS, SLACK_SECONDS, LONGEST_SECONDS = 1.5, 0.1, 0.5, 60.0
LEAVES_AFTER = 8.0
MODEL = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "sequence_length": 16}
TRAINING = {"rounds": 100, "inner_steps": STEPS, "segment_steps": 10, "batch_size": 2, "down_top_k": 1024}
MAX_BYTES = 1 << 26


class _Store:
    """The embedded store in its own process; reads and writes here are not behind a link."""

    def __init__(self, directory: Path) -> None:
        port_file = directory / "ports.json"
        command = [sys.executable, "-m", "zoo_compute.devnet.ipfs_store"]
        self.process = subprocess.Popen(
            [*command, "--directory", str(directory / "store"), "--port-file", str(port_file)]
        )
        until = time.monotonic() + 60
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the store does not start")
            time.sleep(0.05)
        ports = json.loads(port_file.read_text())
        self.rpc, self.gateway = int(ports["rpc_port"]), int(ports["gateway_port"])
        self._client = GatewayClient([f"http://127.0.0.1:{self.gateway}"])

    def add(self, content: bytes) -> str:
        query = {"cid-version": "1", "raw-leaves": "true"}
        url = f"http://127.0.0.1:{self.rpc}/api/v0/add"
        answer = httpx.post(url, params=query, files={"file": content}, timeout=60.0)
        return str(answer.raise_for_status().json()["Hash"])

    def get(self, cid: str) -> bytes:
        return self._client.fetch(cid, max_bytes=MAX_BYTES)


class _Process:
    """A worker process; its answers go to ``answers`` with its number."""

    def __init__(self, number: int, directory: Path, gateway: str, rpc: str, pace: float, answers: Any) -> None:
        self.number = number
        self.left_at: float | None = None
        command = [sys.executable, "-m", "benchmarks.simulator.worker", str(directory), gateway, rpc, str(pace)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | CPU.variables
        )
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has left; that shows later
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def leave(self) -> None:
        """Be gone at once."""
        self.left_at = time.monotonic()
        self.process.kill()
        self.process.wait()

    def _listen(self, answers: "queue.SimpleQueue[tuple[int, dict[str, Any]]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self.number, json.loads(line)))


@dataclass(slots=True)
class _Unit:
    number: int
    slot: int
    worker: _Process
    offered_at: float
    answer: dict[str, Any] | None = None


class _Run:
    """One run of real rounds, with the market's part in this process."""

    def __init__(self, directory: Path, store: _Store, links: list[tuple[str, str]], paces: tuple[float, ...]) -> None:
        self._directory = directory
        self._store = store
        self._answers: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self.workers = [
            _Process(number, directory / f"node-{number}", gateway, rpc, pace, self._answers)
            for number, ((gateway, rpc), pace) in enumerate(zip(links, paces, strict=True))
        ]
        self._publish()
        self._units = 0
        self._arrivals: list[list[float]] = []
        ready = [self._answers.get(timeout=120)[1]["ready"] for _ in self.workers]
        self._environment = ready[0]

    def _publish(self) -> None:
        tokens, _ = standard_library(1 << 18)
        self.text = tokens.tobytes()[: 1 << 18]
        split = describe_split(self._store.add(self.text), self.text)
        dataset = self._store.add(DatasetManifest(split, split).to_bytes())
        document = {"model_config": MODEL, "data_config": {"dataset": dataset}, "training_config": TRAINING}
        self.spec = TrainingSpec.from_dict(document)
        self._model = load_state(self.spec, initial_checkpoint(self.spec))
        self._state: OuterState | None = None
        self._slot_states: dict[int, tuple[str, _Process]] = {}  # with who holds it
        self.sizes = {"model": len(initial_checkpoint(self.spec)), "update": 0}
        self._checkpoint = self._store_checkpoint(0, None, b"")

    def _store_checkpoint(self, round_: int, parent: str | None, update: bytes) -> str:
        manifest = CheckpointManifest(
            job_id=JOB,
            round=round_,
            parent=parent,
            model=self._store.add(save_state(self._model)),
            outer_state=None,
            update=self._store.add(update) if update else None,
            aggregation=None,
            slot_states={str(slot): cid for slot, (cid, _) in self._slot_states.items()},
            data_cursor=round_ * STEPS,
            spec_hash=self.spec.spec_hash(),
        )
        return self._store.add(manifest.to_bytes())

    def rounds(self, slots: int, count: int, leaver: int | None = None) -> list[float]:
        """Seconds of each of ``count`` rounds; the holder of slot ``leaver`` leaves ``LEAVES_AFTER`` the start."""
        self.closings: list[float] = []
        self.trained: list[float] = []
        holders: dict[int, _Process] = {}
        spares = list(self.workers)
        began, taken = time.monotonic(), []
        for round_ in range(count):
            opened = time.monotonic()
            units: dict[int, _Unit] = {}
            self._arrivals.append([])
            while True:
                for slot in range(slots):
                    if slot not in holders and slot not in units and spares:
                        holders[slot] = spares.pop(0)
                    worth = self._look(units, slots, opened).is_worth_offering(datetime.now(UTC))
                    if slot not in units and slot in holders and worth:
                        units[slot] = self._offer(round_, slot, holders[slot])
                state = self._look(units, slots, opened)
                if state.can_close(datetime.now(UTC)):
                    break
                self._hear(units)
                now = time.monotonic()
                if leaver is not None and now - began >= LEAVES_AFTER and holders[leaver].left_at is None:
                    holders[leaver].leave()
                    leaver = None
                for unit in list(units.values()):
                    left_at = unit.worker.left_at
                    if left_at is None and unit.worker.process.poll() is not None:
                        raise RuntimeError("a worker ended by itself; see above")
                    if unit.answer is None and left_at is not None and now >= left_at + LEASE_SECONDS:
                        del units[unit.slot], holders[unit.slot]
            found = time.monotonic()
            self._close(round_, {slot: unit for slot, unit in units.items() if unit.answer})
            for unit in units.values():
                if unit.answer is None:
                    unit.worker.tell({"stop": unit.number})
                    del holders[unit.slot]
                    if unit.worker.left_at is None:
                        spares.append(unit.worker)
            self.closings.append(time.monotonic() - found)
            taken.append(time.monotonic() - opened)
            self.trained += [seconds[1] for seconds in self.last]
            parts = "; ".join(" + ".join(f"{seconds:.2f}" for seconds in one) for one in self.last)
            progress(f"  round {round_}: {taken[-1]:.2f} s, {self.closings[-1]:.2f} of it closing; units {parts}")
        return taken

    def _offer(self, round_: int, slot: int, worker: _Process) -> _Unit:
        self._units += 1
        cid, holder = self._slot_states.get(slot, (None, None))
        task = {
            "job_id": JOB,
            "spec": self.spec.to_dict(),
            "round": round_,
            "slot": slot,
            "checkpoint_cid": self._checkpoint,
            "slot_state_cid": cid if holder is worker else None,
            "restored_payload_cid": None,
            "eager_payload_cid": None,
            "environment": self._environment,
        }
        worker.tell({"unit": self._units, "task": task, "output": str(self._directory / f"unit-{self._units}")})
        return _Unit(self._units, slot, worker, time.monotonic())

    def _hear(self, units: dict[int, _Unit]) -> None:
        """Wait for the next answer, for a sweep at the most."""
        with contextlib.suppress(queue.Empty):
            _, answer = self._answers.get(timeout=SWEEP_SECONDS)
            for unit in units.values():
                if unit.number == answer["unit"]:
                    unit.answer = answer
                    self._arrivals[-1].append(time.monotonic() - unit.offered_at)

    def _look(self, units: dict[int, _Unit], slots: int, opened: float) -> RoundState:
        """As ``market.jobs.dispatch.round_state``."""
        taken = [offset for round_ in self._arrivals[-DEADLINE_ROUNDS - 1 :] for offset in round_]
        deadline = min(lateness.deadline(taken, SLACK_SECONDS) if taken else LONGEST_SECONDS, LONGEST_SECONDS)
        last_offer = lateness.last_offer(taken, deadline) if taken else LONGEST_SECONDS
        return RoundState(
            nodes=slots,
            open=sum(unit.answer is None for unit in units.values()),
            delivered=sum(unit.answer is not None for unit in units.values()),
            started_at=datetime.now(UTC) - timedelta(seconds=time.monotonic() - opened),
            deadline=timedelta(seconds=deadline),
            patience=timedelta(seconds=LONGEST_SECONDS),
            hopeless=sum(unit.answer is None and unit.offered_at > opened + last_offer for unit in units.values()),
            last_offer=timedelta(seconds=last_offer),
        )

    def _close(self, round_: int, delivered: dict[int, _Unit]) -> None:
        answers = {slot: unit.answer for slot, unit in delivered.items() if unit.answer is not None}
        payloads = {slot: self._store.get(answer["payload"]) for slot, answer in answers.items()}
        joined = aggregate(self.spec, self._model, payloads, outer_state=self._state)
        self._model, self._state = joined.parameters, joined.outer_state
        self._slot_states |= {slot: (answer["slot_state"], delivered[slot].worker) for slot, answer in answers.items()}
        self.sizes["update"] = len(joined.update)
        self.sizes["payload"] = max(map(len, payloads.values()))
        self._checkpoint = self._store_checkpoint(round_ + 1, self._checkpoint, joined.update)
        self.last = [answer["seconds"] for answer in answers.values()]

    def end(self) -> None:
        """Leave no process behind."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()


@contextlib.contextmanager
def _running(store: _Store, links: list[tuple[str, str]], paces: tuple[float, ...]) -> Iterator[_Run]:
    with tempfile.TemporaryDirectory() as directory:
        run = _Run(Path(directory), store, links, paces)
        try:
            yield run
        finally:
            run.end()


def compare(quick: bool) -> list[Row]:
    """Real rounds and the same ones simulated, a few times."""
    slots, rounds, repetitions = (3, 3, 1) if quick else (4, 8, 3)
    paces = (*[PACE] * (slots - 1), SLOW_PACE, PACE)  # the last one is a spare at first
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes started here are ended
    with tempfile.TemporaryDirectory() as directory:
        store = _Store(Path(directory))
        try:
            progress(f"real run: {slots} equal workers without a link, to measure")
            scenario = _calibrated(store, slots, paces, rounds)
            real, simulated, told = [], [], []
            for number in range(repetitions):
                progress(f"real run {number + 1} of {repetitions}")
                taken, train, closing = _real(store, slots, paces, rounds)
                real.append(taken)
                simulated.append(_simulated(replace(scenario, seed=number)))
                work = replace(scenario.work, encode=max(0.0, train - scenario.work.compute))
                told.append(_simulated(replace(scenario, work=work, market=replace(scenario.market, close=closing))))
        finally:
            store.process.terminate()
            store.process.wait()
    link = f"{LINK.down_mbps:g}/{LINK.up_mbps:g} Mb/s"
    note = f"{slots} slots, {len(paces)} workers, {rounds} rounds; one slow, one leaves; {link}"
    beside = "the same, told what units and closing took in the run itself: what is left is links and rules"
    return [
        row(
            "real_run_error",
            "share",
            [abs(one - other) / one for one, other in zip(real, simulated, strict=True)],
            note,
        ),
        row(
            "real_run_error_told",
            "share",
            [abs(one - other) / one for one, other in zip(real, told, strict=True)],
            beside,
        ),
        row("real_round_seconds", "s", real),
        row("simulated_round_seconds", "s", simulated),
        row("simulated_round_seconds_told", "s", told),
    ]


def _simulated(scenario: Scenario) -> float:
    """Mean seconds of the simulated rounds."""
    return statistics.fmean(round_.seconds for round_ in simulate(scenario).rounds)


def _calibrated(store: _Store, slots: int, paces: tuple[float, ...], rounds: int) -> Scenario:
    """The scenario of the real run, from a few rounds of equal workers without a link."""
    direct = (f"http://127.0.0.1:{store.gateway}", f"http://127.0.0.1:{store.rpc}")
    with _running(store, [direct] * slots, (PACE,) * slots) as run:
        run.rounds(slots, 3)
        train = statistics.median(seconds[1] for seconds in run.last)
        sizes, dataset, closing = run.sizes, len(run.text), statistics.median(run.closings)
    progress(f"  a unit trains {train:.2f} s, a round closes in {closing:.2f} s; bytes: {sizes}")
    compute = STEPS * PACE
    work = Work(
        compute=compute,
        encode=train - compute,
        payload=sizes["payload"],
        update=sizes["update"],
        model=sizes["model"],
        slot_state=0.0,  # nobody asks for it
        dataset=dataset,
    )
    market = Market(
        requests_before=1,
        requests_after=0,
        close=closing,
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=SWEEP_SECONDS,
        round_deadline_seconds=LONGEST_SECONDS,
        round_slack_seconds=SLACK_SECONDS,
        spares_follow=False,
    )
    nodes = Nodes(
        slots,
        spares=len(paces) - slots,
        links={LINK: 1.0},
        speeds=tuple(PACE / pace for pace in paces),
        departures={1: LEAVES_AFTER},
    )
    return Scenario(work, nodes, market, rounds, unmeasured=0)


def _real(store: _Store, slots: int, paces: tuple[float, ...], rounds: int) -> tuple[float, float, float]:
    """Mean seconds of the real rounds, and the medians of what units trained and of what closing took."""
    with shaping() as loop:
        links = [ShapedLink(loop, LINK.up_mbps * MBIT, LINK.down_mbps * MBIT, LINK.round_trip_seconds) for _ in paces]
        urls = [(link.to(store.gateway), link.to(store.rpc)) for link in links]
        with _running(store, urls, paces) as run:
            taken = run.rounds(slots, rounds, leaver=1)
            return statistics.fmean(taken), statistics.median(run.trained), statistics.median(run.closings)
