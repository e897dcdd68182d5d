"""The market's part in a real run: closes rounds and fills slots."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.report import progress
from benchmarks.training.corpus import standard_library
from market.domain.lifecycle import UnitStatus
from market.platform.storage.client import Storage
from market.training.rounds.service import round_to_offer
from market.training.rounds.state import DEADLINE_ROUNDS, RoundState
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.exchange import deadlines
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint, load_state, save_state

JOB = "0x" + "ab" * 32
STEPS = 20
LEASE_SECONDS, SWEEP_SECONDS, SLACK_SECONDS, LONGEST_SECONDS = 1.5, 0.1, 0.5, 60.0
LEAVES_AFTER = 8.0
STARTING_SECONDS = 600.0
"""Start-up limit of the workers; loading torch takes seconds on an idle machine."""
MODEL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "sequence_length": 16}
TRAINING = {"rounds": 100, "inner_steps": STEPS, "segment_steps": 10, "batch_size": 2, "down_top_k": 1024}
MAX_BYTES = 1 << 26


class Worker:
    """A worker process; it puts its answers into ``answers`` with its number."""

    def __init__(self, number: int, directory: Path, gateway: str, rpc: str, pace: float, answers: Any) -> None:
        self.number = number
        self.left_at: float | None = None
        command = [sys.executable, "-m", "benchmarks.simulator.worker", str(directory), gateway, rpc, str(pace)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | CPU.variables
        )
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def send_order(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has left; `_lose_expired` handles that
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def leave(self) -> None:
        """Kill the process."""
        self.left_at = time.monotonic()
        self.process.kill()
        self.process.wait()

    def _listen(self, answers: "queue.SimpleQueue[tuple[int, dict[str, Any]]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answers.put((self.number, json.loads(line)))


@dataclass(slots=True, eq=False)
class _Unit:
    """A unit; ``result`` merges the worker's two answers."""

    number: int
    round: int
    slot: int
    worker: Worker
    offered_at: float
    result: dict[str, Any] | None = None
    delivered: bool = False

    @property
    def status(self) -> UnitStatus:
        return UnitStatus.LEASED if self.result is None else UnitStatus.UPLOADED


@dataclass(slots=True, eq=False)
class _Round:
    """Units by slot, without lost ones. ``offers``: times of all offers, including lost units."""

    number: int
    opened_at: float = 0.0
    units: dict[int, _Unit] = field(default_factory=dict)
    offers: list[float] = field(default_factory=list)


class Run:
    """One run of real rounds, with the market's part in this process.

    Attributes:
        closings: seconds of each round's closing.
        trained: training seconds of each aggregated unit.
        sizes: bytes of the model, of an update and of the largest payload.
    """

    def __init__(
        self, directory: Path, store: Storage, links: list[tuple[str, str]], paces: tuple[float, ...], delay: int
    ) -> None:
        self._directory = directory
        self._store = store
        self._answers: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self.workers = [
            Worker(number, directory / f"node-{number}", gateway, rpc, pace, self._answers)
            for number, ((gateway, rpc), pace) in enumerate(zip(links, paces, strict=True))
        ]
        self._delay = delay
        self._publish()
        self._numbers = 0
        self._arrivals: defaultdict[int, list[float]] = defaultdict(list)
        self.closings: list[float] = []
        self.trained: list[float] = []
        self._environment = self._await_workers()
        self._closer = ThreadPoolExecutor(1)

    def _await_workers(self) -> str:
        until, ready = time.monotonic() + STARTING_SECONDS, list[str]()
        while len(ready) < len(self.workers):
            with contextlib.suppress(queue.Empty):
                ready.append(self._answers.get(timeout=1.0)[1]["ready"])
            if time.monotonic() > until or any(worker.process.poll() is not None for worker in self.workers):
                self._end_workers()
                raise RuntimeError(f"only {len(ready)} of {len(self.workers)} workers started; see above")
        return ready[0]

    def _publish(self) -> None:
        tokens, _ = standard_library(1 << 18)
        self.text = tokens.tobytes()[: 1 << 18]
        split = describe_shard(self._stored(self.text), self.text)
        dataset = self._stored(DatasetManifest((split,), (split,)).to_bytes())
        training = TRAINING | {"round_delay": self._delay}
        document = {"model_config": MODEL, "data_config": {"dataset": dataset}, "training_config": training}
        self.spec = TrainingSpec.from_dict(document)
        self._model = load_state(self.spec, initial_checkpoint(self.spec))
        self._outer: OuterState | None = None
        self._slot_states: dict[int, tuple[str, Worker]] = {}  # with the worker that holds it
        self.sizes = {"model": len(initial_checkpoint(self.spec)), "update": 0}
        self._checkpoint = self._store_checkpoint(0, None, b"")

    def _stored(self, content: bytes) -> str:
        """Store content without the links, and return its CID."""
        return self._store.put(content, max_bytes=MAX_BYTES).cid

    def _store_checkpoint(self, round_: int, parent: str | None, update: bytes) -> str:
        manifest = CheckpointManifest(
            job_id=JOB,
            round=round_,
            parent=parent,
            model=self._stored(save_state(self._model)),
            outer_state=None,
            update=self._stored(update) if update else None,
            aggregation=None,
            slot_states={str(slot): cid for slot, (cid, _) in self._slot_states.items()},
            data_cursor=round_ * STEPS,
            spec_hash=self.spec.spec_hash(),
        )
        return self._stored(manifest.to_bytes())

    def rounds(self, slots: int, count: int, leaver: int | None = None) -> list[float]:
        """Return the seconds of ``count`` rounds; slot ``leaver``'s holder leaves."""
        self._slots, self._count = slots, count
        self._holders: dict[int, Worker] = {}
        self._spares = list(self.workers)
        self._late: dict[int, _Unit] = {}  # by slot: units delivered after their round
        began = time.monotonic()
        self._now, self._next = _Round(0, began), _Round(1)
        self._closing: Future[None] | None = None
        taken: list[float] = []
        while len(taken) < count:
            self._offer_units()
            if self._closing is None and self._state().can_close(datetime.now(UTC)):
                self._begin_closing()
            self._await_answer()
            if leaver is not None and time.monotonic() - began >= LEAVES_AFTER and leaver in self._holders:
                self._holders[leaver].leave()
                leaver = None
            self._lose_expired()
            if self._closing is not None and self._closing.done():
                self._closing.result()
                taken.append(self._open_next())
        return taken

    def _offer_units(self) -> None:
        for slot in range(self._slots):
            which = self._round_to_offer(slot)
            if slot not in self._holders:
                rests = slot in self._now.units or slot in self._next.units
                if not self._spares or (rests and which is None):
                    continue
                self._holders[slot] = self._spares.pop(0)
            if which is not None:
                self._offer((self._now, self._next)[which], slot)

    def _round_to_offer(self, slot: int) -> int | None:
        if slot in self._late:
            return None
        own, ahead = (
            None if (unit := round_.units.get(slot)) is None else unit.status for round_ in (self._now, self._next)
        )
        state, now, began = self._state(), datetime.now(UTC), deadlines.round_start(self._next.offers, self._slots)
        next_round_open = (
            bool(self._delay)
            and self._next.number < self._count
            and state.can_start_next_round(now, None if began is None else _moment(began))
        )
        return round_to_offer(state, now, own, ahead, next_round_open=next_round_open)

    def _offer(self, round_: _Round, slot: int) -> None:
        worker, before = self._holders[slot], self._now.units.get(slot)
        self._numbers += 1
        cid, holder = self._slot_states.get(slot, (None, None))
        eager = before.result if round_ is self._next and before is not None and before.worker is worker else None
        task = {
            "job_id": JOB,
            "spec": self.spec.to_dict(),
            "round": round_.number,
            "slot": slot,
            "checkpoint_cid": self._checkpoint,
            "slot_state_cid": cid if holder is worker else None,
            "restored_payload_cid": None,
            "eager_payload_cid": None if eager is None else eager["payload"],
            "environment": self._environment,
        }
        worker.send_order(
            {"unit": self._numbers, "task": task, "output": str(self._directory / f"unit-{self._numbers}")}
        )
        round_.units[slot] = _Unit(self._numbers, round_.number, slot, worker, time.monotonic())
        round_.offers.append(time.monotonic())

    def _await_answer(self) -> None:
        """Wait for the next answer, at most one sweep; a finished closing also puts an answer."""
        with contextlib.suppress(queue.Empty):
            _, answer = self._answers.get(timeout=SWEEP_SECONDS)
            for unit in (*self._now.units.values(), *self._next.units.values(), *self._late.values()):
                if unit.number == answer["unit"]:
                    self._store_result(unit, answer)
                    return

    def _store_result(self, unit: _Unit, answer: dict[str, Any]) -> None:
        if unit.result is None:
            unit.result = answer
            if self._delay:  # the slot's next unit starts from it
                self._slot_states[unit.slot] = answer["slot_state"], unit.worker
            return
        unit.delivered = True
        unit.result |= answer
        self._arrivals[unit.round].append(time.monotonic() - unit.offered_at)
        if self._late.get(unit.slot) is unit:
            del self._late[unit.slot]

    def _lose_expired(self) -> None:
        for worker in self.workers:
            if worker.left_at is None:
                if worker.process.poll() is not None:
                    raise RuntimeError("a worker ended by itself; see above")
            elif time.monotonic() >= worker.left_at + LEASE_SECONDS:
                for round_ in (self._now, self._next):
                    round_.units = {
                        slot: unit for slot, unit in round_.units.items() if unit.worker is not worker or unit.delivered
                    }
                self._late = {slot: unit for slot, unit in self._late.items() if unit.worker is not worker}
                self._holders = {slot: holder for slot, holder in self._holders.items() if holder is not worker}

    def _state(self) -> RoundState:
        now, units = self._now, self._now.units.values()
        taken = [
            seconds
            for number, found in self._arrivals.items()
            if number >= now.number - DEADLINE_ROUNDS
            for seconds in found
        ]
        share = deadlines.OVERLAPPED_SLACK if self._delay else deadlines.MIN_SLACK_SHARE
        deadline = min(deadlines.deadline(taken, SLACK_SECONDS, share) if taken else LONGEST_SECONDS, LONGEST_SECONDS)
        last_offer = deadlines.last_offer(taken, deadline) if taken else LONGEST_SECONDS
        if self._closing is not None:
            last_offer = -1.0
        began = deadlines.round_start(now.offers, self._slots) if self._delay else None
        began = now.opened_at if began is None else began
        return RoundState(
            nodes=self._slots,
            open=sum(not unit.delivered for unit in units),
            delivered=sum(unit.delivered for unit in units),
            started_at=_moment(began),
            deadline=timedelta(seconds=deadline),
            patience=timedelta(seconds=LONGEST_SECONDS),
            infeasible=sum(unit.result is None and unit.offered_at > began + last_offer for unit in units),
            last_offer=timedelta(seconds=last_offer),
            last_early_offer=timedelta(seconds=deadlines.latest_early_start(taken, deadline)) if taken else None,
        )

    def _begin_closing(self) -> None:
        self._included = [unit for unit in self._now.units.values() if unit.delivered]
        self._closing = self._closer.submit(self._close, self._now.number, self._included)
        self._closing.add_done_callback(lambda _: self._answers.put((-1, {"unit": None})))

    def _close(self, round_: int, included: list[_Unit]) -> None:
        started = time.monotonic()
        results = {unit.slot: (unit.result, unit.worker) for unit in included if unit.result is not None}
        payloads = {
            slot: self._store.get(result["payload"], max_bytes=MAX_BYTES) for slot, (result, _) in results.items()
        }
        result = aggregate(self.spec, self._model, payloads, outer_state=self._outer)
        self._model, self._outer = result.parameters, result.outer_state
        if not self._delay:
            self._slot_states |= {slot: (result["slot_state"], worker) for slot, (result, worker) in results.items()}
        self.sizes["update"] = len(result.update)
        self.sizes["payload"] = max(map(len, payloads.values()))
        self._checkpoint = self._store_checkpoint(round_ + 1, self._checkpoint, result.update)
        self.closings.append(time.monotonic() - started)

    def _open_next(self) -> float:
        """Open the next round and return this one's seconds; unfixed units stop, fixed ones upload."""
        self._closing = None
        ended, now = self._now, time.monotonic()
        for slot, unit in ended.units.items():
            if unit.result is not None and not unit.delivered:
                self._late[slot] = unit
            elif unit.result is None:
                unit.worker.send_order({"stop": unit.number})
                if self._holders.get(slot) is unit.worker:
                    del self._holders[slot]
                    if unit.worker.left_at is None:
                        self._spares.append(unit.worker)
        results = [unit.result["seconds"] for unit in self._included if unit.result is not None]
        self.trained += [seconds[1] for seconds in results]
        parts = "; ".join(" + ".join(f"{seconds:.2f}" for seconds in one) for one in results)
        took = now - ended.opened_at
        progress(f"  round {ended.number}: {took:.2f} s, {self.closings[-1]:.2f} of it closing; units {parts}")
        self._now, self._next = self._next, _Round(self._next.number + 1)
        self._now.opened_at = now
        return took

    def end(self) -> None:
        """End all processes and threads."""
        self._closer.shutdown()
        self._end_workers()

    def _end_workers(self) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()


def _moment(monotonic: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=time.monotonic() - monotonic)


@contextlib.contextmanager
def running(store: Storage, links: list[tuple[str, str]], paces: tuple[float, ...], delay: int = 0) -> Iterator[Run]:
    """Yield a run; its processes end with it."""
    with tempfile.TemporaryDirectory() as directory:
        run = Run(Path(directory), store, links, paces, delay)
        try:
            yield run
        finally:
            run.end()
