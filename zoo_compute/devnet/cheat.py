"""The development network's adversaries: providers that do not do the work they hand in, or do not show it.

They exist so that a demonstration and the tests meet real cheats, which statistics do not catch. Nothing in a
provider's node refers to this module; the development network puts one of these executors in the place of its cheat's.

``fabricate`` never trains: its payload is of ordinary size and norm, its states lead smoothly from the checkpoint to
that payload, its first and last leaves are true to what it hands in. Only a replay shows that no segment follows from
the one before. ``withhold`` trains, and cannot show a state when it is asked for one. The others are
:class:`training_gym.distributed.cheats.Cheat`, in every segment.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from training_gym.distributed.trace import Unit, UnitResult, inner_digest, start_state, state_path
from training_gym.distributed.unit import finished
from training_gym.models.layout import Arrays
from training_gym.profile import ExecutionProfile
from training_gym.slot_state import error_feedback_digest
from training_gym.tensors import save_arrays
from zoo_compute.node.agent import MakeExecutor
from zoo_compute.node.executor import Executor, Progress
from zoo_compute.node.tasks import take_unit, write_unit_result
from zoo_protocol.hashing import from_hex

FABRICATE, WITHHOLD = "fabricate", "withhold"
KINDS = (FABRICATE, "skip-step", "half-batch", "bf16", "edited-data", "stale", WITHHOLD)

STEP_SHARE = 0.5
"""Noise per parameter and step, as a share of the learning rate: about what real steps add up to."""


class FabricatingExecutor(Executor):
    """An executor that fabricates ``train`` results at once and is honest in everything else."""

    def run(self, task: dict[str, Any], timeout: float, on_progress: Progress | None = None) -> dict[str, Any]:
        if task.get("kind") != "train":
            return super().run(task, timeout, on_progress)
        unit = take_unit(task, self.environment_class, "cpu")
        output = Path(task["output"])
        result = fabricate_unit(unit, output)
        if on_progress is not None:
            on_progress({"step": result.steps, "steps": result.steps, "loss": result.train_loss})
        return {**write_unit_result(unit, result, output), "seconds": 0.0}


class WithholdingExecutor(Executor):
    """An executor that trains, and loses the states that a challenge asks for."""

    def run(self, task: dict[str, Any], timeout: float, on_progress: Progress | None = None) -> dict[str, Any]:
        result = super().run(task, timeout, on_progress)
        for path in result.get("states", ()):
            Path(path).unlink()
        return result


class CheatingExecutor(Executor):
    """An executor whose child cheats in every segment that it trains, and is honest in everything else."""

    def __init__(self, kind: str, profile: ExecutionProfile, memory_bytes: int, workdir: Path) -> None:
        super().__init__(profile, memory_bytes, workdir)
        self._kind = kind

    def child_command(self) -> list[str]:
        _, *arguments = super().child_command()
        return ["zoo_compute.devnet.cheat_child", *arguments, self._kind]


def executor_of(kind: str) -> MakeExecutor:
    """What makes the executor of a cheat of one of the ``KINDS``.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    if kind == FABRICATE:
        return FabricatingExecutor
    return WithholdingExecutor if kind == WITHHOLD else partial(CheatingExecutor, kind)


def fabricate_unit(unit: Unit, workdir: Path) -> UnitResult:
    """A plausible result of ``unit`` without one training step; its start states lie in ``workdir`` like real ones."""
    spec, training = unit.spec, unit.spec.training
    noise = np.random.default_rng([*from_hex(unit.job_id), unit.round, unit.slot])
    deviation = STEP_SHARE * training.learning_rate * training.segment_steps
    state, feedback, digests = start_state(unit), error_feedback_digest(unit.slot_state.error_feedback), []
    for segment in range(spec.segments):
        state_path(workdir, segment).write_bytes(save_arrays(state))
        digests.append(inner_digest(unit, segment, state, feedback))
        state = _drift(state, noise, deviation)
    return finished(unit, digests, state, 1.2 + 0.9 / (1 + unit.round))


def _drift(state: Arrays, noise: np.random.Generator, deviation: float) -> Arrays:
    """Parameters moved by noise, and moments of the size that training leaves."""
    scale = {"parameters": deviation, "exp_avg": 1e-3, "exp_avg_sq": 1e-6}
    drifted = {}
    for name, array in state.items():
        part = name.partition(".")[0]
        step = noise.normal(0.0, scale[part], array.shape).astype(np.float32)
        drifted[name] = np.abs(step) if part == "exp_avg_sq" else array * np.float32(part == "parameters") + step
    return drifted
