"""Training runs of the realistic part, resumed from the last kept state.

Both kinds run real units by the library. A dense run is one unit whose batch holds all slots' rows.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.realistic.corpus import Corpus
from benchmarks.training.trainers import next_replica_states
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, load_outer_state, save_outer_state
from training_gym.data.dataset import Split, validation_samples
from training_gym.evaluate.loss import mean_loss
from training_gym.model.layout import Arrays, NamedArrays, initial_parameters
from training_gym.model.network import Network, Rows
from training_gym.model.tensors import load_arrays, save_arrays
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import load_state, save_state
from training_gym.units.replica_state import ReplicaState, fresh_slot_state, load_slot_state, save_slot_state
from training_gym.units.steps import ignore_step, train_steps
from training_gym.units.trace import Unit, boundary_shapes, moments_of, parameters_of, start_state, steps_after
from training_gym.units.unit import compress

EVALUATED = 1024
"""Samples that evaluate a run."""
_DENSE_STEPS = 51
"""Steps of a dense run between two kept states."""
_NO_HASH = "0x" + "00" * 32
Note = Callable[[str], None]
Exchange = Callable[[TrainingSpec, dict[int, ReplicaState]], dict[int, ReplicaState]]


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run.

    Attributes:
        loss: nats per token on held-out files.
        up, down: bytes that one slot sent and fetched.
        excluded: payloads left out of aggregates.
        curve: mean training loss of each round, or of as many dense steps.
    """

    loss: float
    up: float
    down: float
    excluded: int
    curve: list[float]


class KeptState:
    """Files of a run's last complete round in a folder, which a newer state replaces.

    A state of a large model has gigabytes, so that only one in ``seconds`` is written.
    """

    def __init__(self, folder: Path, seconds: float = 60.0) -> None:
        self._folder, self._seconds, self._written = folder, seconds, time.monotonic()

    def load(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return notes and files; both are empty at the start."""
        if not self._folder.exists():
            return {}, {}
        files = {path.name: path.read_bytes() for path in self._folder.iterdir()}
        return json.loads(files.pop("notes.json")), files

    def save(self, notes: Mapping[str, Any], files: Callable[[], Mapping[str, bytes]]) -> None:
        """Replace the state if it is time. An interruption leaves the old one, the new one, or none."""
        if time.monotonic() < self._written + self._seconds:
            return
        new = self._folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for name, content in {**files(), "notes.json": json.dumps(dict(notes)).encode()}.items():
            (new / name).write_bytes(content)
        self.remove()  # whole, so that no interruption leaves a part of a state
        new.rename(self._folder)
        self._written = time.monotonic()

    def remove(self) -> None:
        """Remove the state: at once from its place, then from the disk."""
        old = self._folder.with_suffix(".old")
        shutil.rmtree(old, ignore_errors=True)
        if self._folder.exists():
            self._folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)


def rounds_without_server(
    spec: TrainingSpec, corpus: Corpus, held_out: str, kept: KeptState, device: str, note: Note
) -> Result:
    """Run :func:`rounds`; every slot fetches the others' payloads."""
    result = rounds(spec, corpus, held_out, kept, device, note)
    return replace(result, down=result.up * (spec.replicas - 1))


def rounds(
    spec: TrainingSpec,
    corpus: Corpus,
    held_out: str,
    kept: KeptState,
    device: str,
    note: Note,
    exchange: Exchange = lambda _, states: states,
    plan: Sequence[range] | None = None,
) -> Result:
    """Run outer rounds.

    Args:
        exchange: returns the replica states that the next round starts with.
        plan: the specification's rounds of each outer round; None takes one each.
    """
    train, slots = corpus.split(spec, "train"), range(spec.replicas)
    plan = plan or [range(number, number + 1) for number in range(spec.training.rounds)]
    notes, files = kept.load()
    done = notes or {"round": 0, "up": 0, "down": 0, "excluded": 0, "restored": [], "curve": []}
    parameters, outer = initial_parameters(spec), initial_outer_state(spec)
    states: dict[int, ReplicaState] = dict.fromkeys(slots, fresh_slot_state(spec))
    if notes:
        parameters, outer = load_state(spec, files["model"]), load_outer_state(spec, files["outer"])
        states = {slot: load_slot_state(spec, files[f"slot-{slot}"]) for slot in slots}
    for round_ in range(done["round"], len(plan)):
        with ThreadPoolExecutor(1) as compressing:  # of one unit, while a GPU trains the next
            begun = [
                compressing.submit(train_units(spec, plan[round_], slot, parameters, train, states[slot], device))
                for slot in slots
            ]
        trained = [one.result() for one in begun]
        payloads = {slot: one.payload for slot, one in zip(slots, trained, strict=True)}
        after = {slot: one.state for slot, one in zip(slots, trained, strict=True)}
        result = aggregate(spec, parameters, payloads, outer_state=outer)
        excluded = {slot: verdict.code for slot, verdict in result.verdicts.items() if not verdict.included}
        states, restored = next_replica_states(spec, after, payloads, excluded, done["restored"])
        states = exchange(spec, states)
        parameters, outer = result.parameters, result.outer_state
        fetched = len(result.update) if spec.training.down_top_k else 4 * spec.num_parameters()
        done = {
            "round": round_ + 1,
            "up": done["up"] + sum(map(len, payloads.values())) / len(slots),
            "down": done["down"] + fetched,
            "excluded": done["excluded"] + len(excluded),
            "restored": sorted(restored),
            "curve": [*done["curve"], round(float(np.mean([one.loss for one in trained])), 4)],
        }
        kept.save(done, partial(_files, spec, parameters, outer, states))
        note(f"round {round_ + 1} of {len(plan)}: {done['curve'][-1]}")
    loss = evaluated_loss(spec, parameters, corpus.split(spec, held_out), device)
    return Result(loss, done["up"], done["down"], done["excluded"], done["curve"])


def _files(
    spec: TrainingSpec, parameters: Arrays, outer: OuterState, states: Mapping[int, ReplicaState]
) -> dict[str, bytes]:
    files = {"model": save_state(parameters), "outer": save_outer_state(spec, outer)}
    return files | {f"slot-{slot}": save_slot_state(state) for slot, state in states.items()}


def _file(state: NamedArrays) -> dict[str, bytes]:
    return {"state": save_arrays(state)}


@dataclass(frozen=True, slots=True)
class TrainedUnits:
    """Result of units without a trace: payload, next replica state, end model, mean loss."""

    payload: bytes
    state: ReplicaState
    parameters: Arrays
    loss: float


def train_units(
    spec: TrainingSpec,
    numbers: range,
    slot: int,
    parameters: NamedArrays,
    train: Split,
    state: ReplicaState,
    device: str,
) -> Callable[[], TrainedUnits]:
    """Train the units of these rounds one after the other; return what compresses their result.

    The payload is the whole way from ``parameters``.
    """
    end, losses, unit = parameters, [], Unit(spec, _NO_HASH, 0, slot, parameters, train, state, _NO_HASH, device)
    for number in numbers:
        unit = replace(unit, round=number, checkpoint=end, slot_state=state)
        boundary, loss = train_steps(unit, start_state(unit), range(spec.training.inner_steps), ignore_step)
        losses.append(loss)
        end = parameters_of(boundary)
        state = replace(state, moments=moments_of(boundary), steps=steps_after(unit, spec.segments))
    return partial(_compressed, replace(unit, checkpoint=parameters), boundary, float(np.mean(losses)))


def _compressed(unit: Unit, boundary: NamedArrays, loss: float) -> TrainedUnits:
    payload, error_feedback = compress(unit, boundary)
    state = ReplicaState(error_feedback, moments_of(boundary), steps_after(unit, unit.spec.segments))
    return TrainedUnits(payload, state, dict(parameters_of(boundary)), loss)


class _AllSlots:
    """The batches of all slots in one process."""

    def __init__(self, slots: range) -> None:
        self.slots: Sequence[int] = slots

    def attach(self, network: Network) -> Callable[[Rows, float], Any]:
        """Return the network's own loss: the mean over all rows needs no exchange."""
        return network


def dense(spec: TrainingSpec, corpus: Corpus, held_out: str, kept: KeptState, device: str, note: Note) -> Result:
    """Train with the mean gradient of all slots at every step, sent as whole fp32."""
    train, total = corpus.split(spec, "train"), spec.training.inner_steps
    notes, files = kept.load()
    done = notes or {"step": 0, "curve": []}
    unit = Unit(spec, _NO_HASH, 0, 0, initial_parameters(spec), train, fresh_slot_state(spec), _NO_HASH, device)
    state: NamedArrays = start_state(unit)
    if notes:
        state = load_arrays(files["state"], boundary_shapes(spec), "state")
    for first in range(done["step"], total, _DENSE_STEPS):
        steps = range(first, min(first + _DENSE_STEPS, total))
        state, loss = train_steps(unit, state, steps, ignore_step, _AllSlots(range(spec.replicas)))
        done = {"step": steps.stop, "curve": [*done["curve"], round(loss, 4)]}
        kept.save(done, partial(_file, state))
        note(f"step {steps.stop} of {total}: {loss:.4f}")
    sent = 4 * spec.num_parameters() * total
    return Result(
        evaluated_loss(spec, parameters_of(state), corpus.split(spec, held_out), device), sent, sent, 0, done["curve"]
    )


def evaluated_loss(spec: TrainingSpec, parameters: NamedArrays, held_out: Split, device: str) -> float:
    """Return the mean loss of ``EVALUATED`` held-out samples."""
    return mean_loss(spec, dict(parameters), validation_samples(held_out, EVALUATED), device)
