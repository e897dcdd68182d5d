"""Real units trained and replayed in processes of different environment classes.

Each process starts with the variables of one class, like a node's training child, and communicates by files. It writes
trained units as a node keeps them and prints the computed leaves as one line of JSON. ``benchmarks.verification`` runs
it as ``python -m benchmarks.detection.replays WORK DIRECTORY CLASS ...``.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training.corpus import standard_library
from training_gym.compress.payload_format import decode, encode
from training_gym.data.dataset import one_shard
from training_gym.data.shards import Tokens
from training_gym.model.layout import Arrays, NamedArrays, initial_parameters
from training_gym.model.tensors import Vector
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU, ExecutionProfile
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.errors import ResultMismatch
from training_gym.units.environment_class import environment_class
from training_gym.units.replica_state import error_feedback_digest, fresh_slot_state, load_slot_state, write_slot_state
from training_gym.units.steps import OnStep, train_steps
from training_gym.units.trace import Unit, check_result, inner_leaf, load_boundary_state, state_path
from training_gym.units.unit import replay_end_state, replay_segment, run_unit, segment_steps
from training_gym.verify.adversaries import Attack, dishonest_training, parameter_change
from training_gym.verify.tolerance import claimed_end, difference
from zoo_protocol.hashing import from_hex, to_hex

_TEXT_BYTES = 1 << 20
_HAS_AVX512 = "avx512f" in Path("/proc/cpuinfo").read_text()  # torch ends without a word where it is missing
_SETTINGS = TrainingConfig(rounds=64, inner_steps=8, segment_steps=2, batch_size=8, warmup_steps=2)
_SMALL = read_model({"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16})
SPECS = {
    "small": TrainingSpec(_SMALL, "corpus", _SETTINGS),
    "adamw": TrainingSpec(_SMALL, "corpus", replace(_SETTINGS, optimizer="adamw")),
    "demo": TrainingSpec(ModelConfig(), "corpus", replace(_SETTINGS, batch_size=16)),
    "wide": TrainingSpec(read_model({"hidden_size": 128}), "corpus", _SETTINGS),
}


def _class(name: str, threads: int, mkl: str | None, aten: str | None) -> ExecutionProfile:
    """Return a profile of threads, the matrix library's code path and torch's instruction set."""
    variables = {**CPU.variables, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    for variable, value in (("MKL_CBWR", mkl), ("ATEN_CPU_CAPABILITY", aten)):
        variables.pop(variable)
        if value is not None:
            variables[variable] = value
    return ExecutionProfile(name, "cpu", variables)


CLASSES = {
    profile.name: profile
    for profile in (
        CPU,
        _class("avx2-2", 2, "AVX2,STRICT", "avx2"),
        *(_class(f"avx512-{threads}", threads, "AVX512,STRICT", "avx512") for threads in (1, 2) if _HAS_AVX512),
        _class("scalar-1", 1, "COMPATIBLE", "default"),
        _class("mixed-1", 1, "AVX2,STRICT", "default"),
        _class("free-1", 1, None, None),
        _class("free-2", 2, None, None),
    )
}
"""Nodes use the first profile; the others are deviations of a misconfigured node."""


PLANS = {"full": {"small": 36, "adamw": 16, "demo": 8, "wide": 4}, "quick": {"small": 2, "adamw": 1}}
"""Number of units of each specification that a class trains."""
_PAYLOAD, _SLOT_STATE = "payload.bin", "slot-state.safetensors"
DRIFT_UNITS = 4
"""Units of each specification and class whose end states are compared across classes."""


def call(work: str, profile: ExecutionProfile, directory: Path, *arguments: str) -> Any:
    """Return the answer of a process of that class to ``work``. Raises RuntimeError: it failed."""
    environment = {name: value for name, value in os.environ.items() if name not in CPU.variables}
    environment["OMP_WAIT_POLICY"] = "passive"  # avoids spinning threads; changes no result
    command = ["nice", "-n", "5", sys.executable, "-m", "benchmarks.detection.replays"]
    done = subprocess.run(
        [*command, work, str(directory), profile.name, *arguments],
        env=environment | profile.variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{work} as {profile.name} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


@cache
def _text() -> Tokens:
    return standard_library(_TEXT_BYTES)[0]


def unit_of(spec_name: str, number: int, environment: str) -> Unit:
    """Return a specification's ``number``-th unit, with its own round and slot."""
    spec = SPECS[spec_name]
    return Unit(
        spec=spec,
        job_id=to_hex(spec_name.encode().rjust(32, b"\0")),
        round=number % spec.training.rounds,
        slot=number,
        checkpoint=initial_parameters(spec),
        train=one_shard(spec, _text()),
        slot_state=fresh_slot_state(spec),
        environment=environment,
    )


def _folder(directory: Path, class_name: str, spec: str, number: int) -> Path:
    return directory / class_name / f"{spec}-{number}"


def _train(directory: Path, class_name: str, environment: str, plan: Mapping[str, int]) -> Any:
    leaves = {}
    for spec, number in [(spec, number) for spec, count in plan.items() for number in range(count)]:
        folder = _folder(directory, class_name, spec, number)
        folder.mkdir(parents=True)
        result = run_unit(unit_of(spec, number, environment), folder)
        leaves[f"{spec} {number}"] = [to_hex(leaf) for leaf in result.leaves]
        (folder / _PAYLOAD).write_bytes(result.payload)
        write_slot_state(folder / _SLOT_STATE, result.slot_state)
    trained = {"environment": environment, "leaves": leaves}
    (directory / class_name / "trained.json").write_text(json.dumps(trained))
    return trained


def _trained(directory: Path, class_name: str) -> Iterator[tuple[str, Unit, Path, list[bytes]]]:
    """Yield each unit that a class trained: its name, the unit, its folder and its leaves."""
    trained = json.loads((directory / class_name / "trained.json").read_text())
    for name, leaves in trained["leaves"].items():
        spec, number = name.split()
        unit = unit_of(spec, int(number), trained["environment"])
        yield name, unit, _folder(directory, class_name, spec, unit.slot), [from_hex(leaf) for leaf in leaves]


def _replay(directory: Path, other: str) -> Any:
    """Replay every segment that ``other`` trained; return its end leaf by unit and segment."""
    return {
        name: [
            to_hex(replay_segment(unit, segment, leaf, state_path(folder, segment).read_bytes()))
            for segment, leaf in enumerate(leaves[:-1])
        ]
        for name, unit, folder, leaves in _trained(directory, other)
    }


def _earlier_change(directory: Path, spec: str, environment: str) -> Vector:
    """Train an honest unit, and return its change of the parameters, which a later unit repeats."""
    unit = unit_of(spec, 0, environment)
    run_unit(unit, directory)
    middle = state_path(directory, unit.spec.segments - 1).read_bytes()
    return parameter_change(unit, load_boundary_state(unit.spec, middle))


def _attack(directory: Path, environment: str, specs: list[str]) -> Any:
    """Apply each minimal attack to every segment of a unit; return detections by attack."""
    found: dict[str, list[bool]] = {attack.value: [] for attack in Attack}
    for spec in specs:
        earlier = _earlier_change(directory, spec, environment)
        unit = unit_of(spec, 1, environment)
        for attack in Attack:
            for segment in range(unit.spec.segments):
                result = run_unit(unit, directory, train=dishonest_training(attack, {segment}, earlier))
                check_result(unit, result)  # the checks without a replay
                state = state_path(directory, segment).read_bytes()
                end = replay_segment(unit, segment, result.leaves[segment], state)
                found[attack.value].append(end != result.leaves[segment + 1])
    return found


def _drift(directory: Path, others: list[str]) -> Any:
    """Return distances from other classes' honest end states, by specification: (whole, widest)."""
    # Each segment is replayed from the other's start state, like a verifier's. Payload and replica state give the last
    # end state.
    found: dict[str, list[tuple[float, float]]] = {}
    for other in others:
        for name, unit, folder, leaves in _trained(directory, other):
            if unit.slot >= DRIFT_UNITS:
                continue
            states = [state_path(folder, segment).read_bytes() for segment in range(unit.spec.segments)]
            slot_state = load_slot_state(unit.spec, (folder / _SLOT_STATE).read_bytes())
            claims = [load_boundary_state(unit.spec, state) for state in states[1:]]
            claims.append(claimed_end(unit, slot_state, (folder / _PAYLOAD).read_bytes()))
            for segment, claimed in enumerate(claims):
                ended, _ = replay_end_state(unit, segment, leaves[segment], states[segment])
                apart = difference(claimed, ended)
                found.setdefault(name.split()[0], []).append((apart.whole, apart.widest))
    return found


def _attack_distances(directory: Path, environment: str, specs: list[str]) -> Any:
    """Return attacks' distances from the honest end: (whole, widest) by specification, attack."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for spec in specs:
        earlier = _earlier_change(directory, spec, environment)
        unit = unit_of(spec, 1, environment)
        run_unit(unit, directory)
        for attack in Attack:
            for segment in range(unit.spec.segments):
                start = load_boundary_state(unit.spec, state_path(directory, segment).read_bytes())
                steps = segment_steps(unit.spec, segment)
                honest, _ = train_steps(unit, start, steps, lambda step, loss: None)
                false, _ = dishonest_training(attack, {segment}, earlier)(unit, start, steps, lambda step, loss: None)
                apart = difference(false, honest)
                found.setdefault(spec, {}).setdefault(attack.value, []).append((apart.whole, apart.widest))
    return found


def _payloads(directory: Path, environment: str, specs: list[str]) -> Any:
    """Return by attack whether a verifier of another class refuses the altered payloads."""
    # The error feedback has the difference, so that payload and error feedback sum to the unit's result.
    found: dict[str, list[bool]] = {}
    for spec in specs:
        other = decode(SPECS[spec], run_unit(unit_of(spec, 0, environment), directory).payload).dense()
        unit = unit_of(spec, 1, environment)
        result = run_unit(unit, directory)
        sent, left = decode(unit.spec, result.payload).dense(), result.slot_state
        wanted = left.error_feedback + sent
        false = {
            "flipped, five times as large": -5 * sent,
            "nothing": 0 * sent,
            "3 % smaller": np.float32(0.97) * sent,
            "another unit's": other,
        }
        for attack, vector in false.items():
            payload = encode(unit.spec, vector)
            rest = wanted - decode(unit.spec, payload).dense()
            try:
                claimed_end(unit, replace(left, error_feedback=rest), payload)
                refused = False
            except ResultMismatch:
                refused = True
            found.setdefault(attack, []).append(refused)
    return found


def _time(directory: Path, environment: str, spec: str, repetitions: int) -> Any:
    unit = unit_of(spec, 0, environment)
    unit = replace(
        unit, spec=replace(unit.spec, training=replace(unit.spec.training, inner_steps=48, segment_steps=12))
    )
    known = run_unit(unit, directory)  # later runs have the same leaves and states
    found = []
    for _ in range(repetitions):
        replaying = 0.0

        def train(unit: Unit, state: NamedArrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
            # Replayed right before training, since the machine's speed fluctuates within seconds.
            nonlocal replaying
            began, segment = time.process_time(), steps.start // unit.spec.training.segment_steps
            replay_segment(unit, segment, known.leaves[segment], state_path(directory, segment).read_bytes())
            replaying += time.process_time() - began
            return train_steps(unit, state, steps, on_step)

        began = time.process_time()
        run_unit(unit, directory, train=train)
        training = time.process_time() - began - replaying
        state = load_boundary_state(unit.spec, state_path(directory, unit.spec.segments - 1).read_bytes())
        hashing = time.process_time()
        feedback = error_feedback_digest(unit.slot_state.error_feedback)
        for boundary in range(unit.spec.segments + 1):
            inner_leaf(unit, boundary, state, feedback)
        unit.slot_state.digest()  # the last leaf hashes it again
        found.append({"train": training, "replay": replaying, "hash": time.process_time() - hashing})
    return {"parameters": unit.spec.num_parameters(), "segments": unit.spec.segments, "seconds": found}


def main() -> None:
    """Do one task in this process and print its result."""
    work, directory, class_name, *arguments = sys.argv[1:]
    profile = CLASSES[class_name]
    configure(profile)
    torch.set_num_threads(int(profile.variables["OMP_NUM_THREADS"]))
    environment = environment_class(profile)
    folder = Path(directory)
    tasks: dict[str, Callable[[], Any]] = {
        "train": lambda: _train(folder, class_name, environment, PLANS[arguments[0]]),
        "replay": lambda: {other: _replay(folder, other) for other in arguments},
        "attack": lambda: _attack(folder, environment, arguments),
        "drift": lambda: _drift(folder, arguments),
        "attack-distances": lambda: _attack_distances(folder, environment, arguments),
        "payloads": lambda: _payloads(folder, environment, arguments),
        "time": lambda: _time(folder, environment, arguments[0], int(arguments[1])),
    }
    print(json.dumps(tasks[work]()))


if __name__ == "__main__":
    main()
