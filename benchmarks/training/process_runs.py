"""Runs of ``benchmarks.models``: units of several processes, each a fresh one."""

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training.model_runs import unit_of
from training_gym.optimise.process_group import joined
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.steps import finish, follow, train_together
from training_gym.units.unit import run_unit


@dataclass(frozen=True, slots=True)
class Trained:
    """Leaves of a unit's trace, and the seconds of its steps after the first."""

    leaves: list[bytes]
    seconds: float


def train_in(spec: TrainingSpec, count: int, is_sharded: bool) -> Trained:
    """Train a unit on ``count`` fresh processes."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool,
    ):
        meeting = Path(directory) / "meeting"
        first, *_ = [pool.submit(take_part, spec, meeting, rank, count, is_sharded) for rank in range(count)]
        found = first.result()
    assert found is not None  # process 0 returns the unit's trace
    return found


def take_part(spec: TrainingSpec, meeting: Path, rank: int, count: int, is_sharded: bool) -> Trained | None:
    """Train as process ``rank``; process 0 returns the result."""
    configure(CPU)
    unit, times = unit_of(spec, Path()), list[float]()
    with joined(meeting, rank, count, "cpu", is_sharded) as processes, tempfile.TemporaryDirectory() as directory:
        if rank:
            follow(unit, processes)
            return None
        train = train_together(processes)
        result = run_unit(unit, Path(directory), lambda step, loss: times.append(time.perf_counter()), train=train)
        finish(processes, unit.device)
    return Trained(result.leaves, times[-1] - times[0])
