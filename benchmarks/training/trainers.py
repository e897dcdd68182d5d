"""Training runs of eight workers by each method of ``benchmarks.communication``.

All train the same model from the same start on the same windows of text (``data.dataset``) for equally many steps. They
report the model's final loss and the bytes that one worker sent and fetched. Ours use the library: ``run_unit`` per
worker and round, its payload, ``aggregate``, and its update. torchft's is torchft (``peers/``).
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch.distributed as dist

from benchmarks.report import progress
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import initial_outer_state
from training_gym.aggregate.robust import RESTORED_FOR
from training_gym.data.dataset import one_shard
from training_gym.data.shards import Tokens
from training_gym.evaluate.loss import validation_loss
from training_gym.exchange import deadlines
from training_gym.model.layout import Arrays, initial_parameters, parameter_shapes
from training_gym.model.tensors import load_arrays
from training_gym.optimise.parallel_steps import ProcessGroup
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import ReplicaState, fresh_slot_state
from training_gym.units.trace import Unit, load_boundary_state, state_path
from training_gym.units.unit import run_unit

ROOT = Path(__file__).parents[2]
WORKERS = 8
TORCHFT_PYTHON = Path(os.environ.get("ZOO_TORCHFT_PYTHON", ROOT / ".peers" / "torchft" / "bin" / "python"))
"""The interpreter of torchft's environment, made by ``make bench-peers``."""
_NO_HASH = "0x" + "00" * 32
_VALIDATION_PARTS = 8  # of up to 256 windows each


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run: validation loss (nats per byte), one worker's bytes, excluded payloads."""

    loss: float
    up: float
    down: float
    excluded: int = 0


def by_rounds(spec: TrainingSpec, train: Tokens, held_out: Tokens, all_gather: bool = False) -> Outcome:
    """Run outer rounds of real units, payloads and aggregation.

    Args:
        spec: the specification to train.
        train: tokens to train on.
        held_out: tokens to evaluate on.
        all_gather: count the other seven payloads as fetched bytes, as without a server.
    """
    parameters, state = initial_parameters(spec), initial_outer_state(spec)
    states = dict.fromkeys(range(WORKERS), fresh_slot_state(spec))
    restored: set[int] = set()
    up = down = excluded = 0
    for round_ in range(spec.training.rounds):
        payloads, after = {}, {}
        for slot in range(WORKERS):
            payloads[slot], after[slot] = train_unit(spec, round_, slot, parameters, train, states[slot])
        result = aggregate(spec, parameters, payloads, outer_state=state)
        excluded_now = {slot: verdict.code for slot, verdict in result.verdicts.items() if not verdict.included}
        states, restored = next_replica_states(spec, after, payloads, excluded_now, restored)
        parameters, state = result.parameters, result.outer_state
        sent = sum(len(payload) for payload in payloads.values())
        up, excluded = up + sent, excluded + len(excluded_now)
        if all_gather:
            down += sent - sent // WORKERS
        else:  # without an update nodes fetch the whole model
            down += len(result.update) if spec.training.down_top_k else 4 * spec.num_parameters()
    return Outcome(_loss(spec, parameters, held_out), up / WORKERS, down, excluded)


def train_unit(
    spec: TrainingSpec, round_: int, slot: int, parameters: Arrays, train: Tokens, state: ReplicaState
) -> tuple[bytes, ReplicaState]:
    """Return the payload of a real unit, and the replica state after it."""
    unit = Unit(spec, _NO_HASH, round_, slot, parameters, one_shard(spec, train), state, _NO_HASH)
    with tempfile.TemporaryDirectory() as directory:
        result = run_unit(unit, Path(directory))
    return result.payload, result.slot_state


def next_replica_states(
    spec: TrainingSpec,
    after: Mapping[int, ReplicaState],
    payloads: Mapping[int, bytes],
    excluded: Mapping[int, str],
    restored: Collection[int],
) -> tuple[dict[int, ReplicaState], set[int]]:
    """Return each slot's next state, and the slots whose payloads were restored.

    Args:
        after: state after its unit, by slot.
        payloads: payload of its unit, by slot.
        excluded: code of the aggregate's exclusion, by slot.
        restored: slots restored in the previous round, which are not restored again.
    """
    given_back = {slot for slot in after if excluded.get(slot) in RESTORED_FOR and slot not in restored}
    states = {
        slot: deadlines.restore_error_feedback(spec, state, payloads[slot]) if slot in given_back else state
        for slot, state in after.items()
    }
    return states, given_back


def by_steps(spec: TrainingSpec, train: Tokens, held_out: Tokens) -> Outcome:
    """Train with gradients averaged at every step, in one process for all workers.

    All-reduce and PowerSGD are linear, so that only the workers' mean counts but for rounding. With rank 1 and 300
    steps eight processes ended 0.9 % higher (one seed). The bytes are those of any one member.
    """
    with tempfile.TemporaryDirectory() as directory:
        dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", world_size=1, rank=0)
        try:
            start, group = initial_parameters(spec), ProcessGroup(spec, WORKERS)
            unit = Unit(spec, _NO_HASH, 0, 0, start, one_shard(spec, train), fresh_slot_state(spec), _NO_HASH)
            run_unit(unit, Path(directory), group=group)
        finally:
            dist.destroy_process_group()
        end = load_boundary_state(spec, state_path(Path(directory), spec.segments).read_bytes())
    parameters = {name: end[f"parameters.{name}"] for name in parameter_shapes(spec)}
    return Outcome(_loss(spec, parameters, held_out), group.bytes_sent, group.bytes_sent)


def by_torchft(spec: TrainingSpec, warmup: int, train: Tokens, held_out: Tokens) -> Outcome | None:
    """Run DiLoCo of ``torchft`` after one warm-up; return None if its environment is missing."""
    if not TORCHFT_PYTHON.exists():
        progress(f"{TORCHFT_PYTHON} is missing (make bench-peers): torchft is left out")
        return None
    with tempfile.TemporaryDirectory() as directory:
        job, end = Path(directory) / "job.json", Path(directory) / "end.safetensors"
        np.save(Path(directory) / "train.npy", train)
        files = {"train": f"{directory}/train.npy", "end": str(end)}
        job.write_text(json.dumps({"spec": spec.to_dict(), "workers": WORKERS, "warmup": warmup, **files}))
        command = [str(TORCHFT_PYTHON), "-m", "benchmarks.peers.torchft_diloco", str(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise RuntimeError(f"torchft failed: {done.stderr[-2000:]}")
        parameters = load_arrays(end.read_bytes(), parameter_shapes(spec), "end")
    sent = json.loads(done.stdout.splitlines()[-1])["bytes_sent"]
    return Outcome(_loss(spec, parameters, held_out), sent, sent)


def _loss(spec: TrainingSpec, parameters: Arrays, held_out: Tokens) -> float:
    parts = np.array_split(held_out, _VALIDATION_PARTS)
    return statistics.fmean(validation_loss(spec, parameters, one_shard(spec, part)) for part in parts)
