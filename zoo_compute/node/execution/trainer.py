"""Training tasks in this process (``tasks.py`` describes them). Imports torch."""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training_gym.evaluate.extent import evaluation_limit
from training_gym.evaluate.loss import evaluate
from training_gym.hardware.challenge import ProofParameters
from training_gym.hardware.prover import Prover
from training_gym.model.layout import NamedArrays
from training_gym.model.network import base_of
from training_gym.model.tensors import tensor_digest, write_arrays
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import ExecutionProfile
from training_gym.spec.errors import ProfileError
from training_gym.units.checkpoint import load_state
from training_gym.units.environment_class import environment_class
from training_gym.units.probe import probe_digest, probe_unit
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.steps import OnStep, Train, train_steps
from training_gym.units.trace import Unit, UnitResult, inner_leaf, leaf_at
from training_gym.units.unit import replay, replay_end_state, run_unit, segment_steps, unit_result
from zoo_compute.node.execution.follower import ProcessGroup
from zoo_compute.node.execution.tasks import (
    Task,
    TaskError,
    catch_up_model,
    is_across,
    require_environment,
    take,
    take_base,
    take_count,
    take_file,
    take_hash,
    take_optional_path,
    take_spec,
    take_split,
    take_unit,
    write_unit_result,
)
from zoo_protocol.hashing import from_hex, to_hex

_MAX_HASH_THREADS = 16

_PROBED_EVERY = 32
"""Mean number of units and replays between two probes. A probe took 0.19 s of one core."""

OnProgress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class InnerStateRequest:
    """Request for the digest of the state after ``step`` steps of the first segment.

    The digest includes ``nonce`` (32 bytes), so that it cannot be computed without the state itself.
    """

    step: int
    nonce: bytes

    @classmethod
    def of(cls, task: Task, unit: Unit, segment: int) -> "InnerStateRequest | None":
        """Parse the request of a ``replay`` task; None if only the end is requested.

        Raises:
            TaskError: malformed, or not in a first segment.
        """
        if task.get("inner") is None:
            return None
        asked = take(task, "inner", dict)
        step = take_count(asked, "step", unit.spec.training.segment_steps + 1)
        if segment > 0 or step == 0:
            raise TaskError("invalid_task", "task.inner", f"step {step} of segment {segment} is not in the first one")
        return cls(step, from_hex(take_hash(asked, "nonce")))

    def digest(self, state: NamedArrays) -> bytes:
        """Return the tensor digest (32 bytes) of nonce (array ``!nonce``) and state."""
        return tensor_digest({"!nonce": np.frombuffer(self.nonce, "<f4"), **state})


def replay_with_inner_digest(
    unit: Unit, inner: InnerStateRequest, start_leaf: bytes, on_step: OnStep
) -> tuple[bytes, bytes]:
    """Return leaf 1, as :func:`~training_gym.units.unit.replay` does, and the inner digest.

    Interrupting the training at the inner state does not change the bits.

    Raises:
        StartStateMismatch, TrainingDiverged: as :func:`training_gym.units.unit.replay`.
    """
    training = replace(unit.spec.training, segment_steps=inner.step)
    state, _ = replay_end_state(replace(unit, spec=replace(unit.spec, training=training)), 0, start_leaf, None, on_step)
    digest = inner.digest(state)
    state, loss = train_steps(unit, state, segment_steps(unit.spec, 0)[inner.step :], on_step)
    if unit.spec.segments > 1:
        return inner_leaf(unit, 1, state, error_feedback_digest(unit.slot_state.error_feedback)), digest
    return leaf_at(unit.place, 1, unit_result(unit, [], state, loss).state_digests[-1]), digest


class Trainer:
    """Runner of tasks under a probed execution profile.

    Raises:
        ProfileError: the process was not started with the profile's variables.
    """

    def __init__(self, profile: ExecutionProfile) -> None:
        configure(profile)
        self.profile = profile
        self.environment = environment_class(profile)
        self._handlers = {
            "train": self._train,
            "replay": self._replay,
            "evaluate": self._evaluate,
            "catch_up": self._catch_up,
            "probe": self._probe,
            "probe_job": self._probe_job,
            "prove_ready": self._prove_ready,
            "prove_work": self._prove_work,
            "prove_open": self._prove_open,
        }
        self._prover: Prover | None = None
        self.group: ProcessGroup | None = None
        self.train: Train = train_steps
        """Honest training of the present unit, in all its processes."""

    def run(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        """Return the task's result object, with the seconds it took.

        Raises:
            GymError: malformed task or input, uncommitted start state, diverged training, or a changed environment
                class of this process (``environment_changed``).
        """
        kind = take(task, "kind", str)
        if kind not in self._handlers:
            raise TaskError("invalid_task", "task.kind", f"{kind!r:.80} is not one of {', '.join(self._handlers)}")
        if kind not in ("prove_work", "prove_open"):
            self._prover = None  # an abandoned benchmark's pools leave no memory for training
        started = time.monotonic()
        result = self._handlers[kind](task, on_progress)
        return {**result, "seconds": round(time.monotonic() - started, 3)}

    def _train(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        unit = self._unit(task)
        output = Path(take(task, "output", str))

        def report(step: int, loss: float) -> None:
            on_progress({"step": step + 1, "steps": unit.spec.training.inner_steps, "loss": loss})

        with self._together(task, unit) as self.train:
            result = self.run_unit(unit, output, report)
        return write_unit_result(unit, result, output)

    def _probe_job(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        unit = probe_unit(take_unit(task, self.environment, self.profile.device))
        with self._together(task, unit) as train:
            return {"digest": to_hex(probe_digest(unit, train))}

    def _together(self, task: Task, unit: Unit) -> AbstractContextManager[Train]:
        return nullcontext(self.train) if self.group is None else self.group.training(dict(task), unit)

    def _unit(self, task: Task) -> Unit:
        self._probe_at_random()
        return take_unit(task, self.environment, self.profile.device)

    def _probe_at_random(self) -> None:
        """Probe again at random: wrong results of a changed device would count against this node."""
        if secrets.randbelow(_PROBED_EVERY) == 0 and environment_class(self.profile) != self.environment:
            raise ProfileError(
                "environment_changed", "profile", "a new probe gives another environment class than at the start"
            )

    def run_unit(self, unit: Unit, output: Path, on_step: OnStep) -> UnitResult:
        """Run a unit, its states in ``output``; raises as :func:`training_gym.units.unit.run_unit`."""
        return run_unit(unit, output, on_step, train=self.train)

    def _replay(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        unit = self._unit(task)
        segment = take_count(task, "segment", unit.spec.segments)
        steps = unit.spec.training.segment_steps

        def report(step: int, loss: float) -> None:
            on_progress({"step": step + 1 - segment * steps, "steps": steps, "loss": loss})

        start_leaf = from_hex(take_hash(task, "start_leaf"))
        if is_across(task):
            return self._replay_across(task, unit, segment, start_leaf, report)
        inner = InnerStateRequest.of(task, unit, segment)
        if inner is not None:
            end_leaf, digest = replay_with_inner_digest(unit, inner, start_leaf, report)
            return {"end_leaf": to_hex(end_leaf), "inner_digest": to_hex(digest), "steps": steps}
        end_leaf, payload = replay(unit, segment, start_leaf, take_optional_path(task, "state"), report)
        sent = None if payload is None else to_hex(payload)
        return {"end_leaf": to_hex(end_leaf), "payload_sha256": sent, "steps": steps}

    def _replay_across(
        self, task: Task, unit: Unit, segment: int, start_leaf: bytes, on_step: OnStep
    ) -> dict[str, Any]:
        state, _ = replay_end_state(unit, segment, start_leaf, take_optional_path(task, "state"), on_step)
        path = Path(take(task, "output", str)) / f"across-{segment}.safetensors"
        write_arrays(path, state)
        end_leaf = inner_leaf(unit, segment + 1, state, error_feedback_digest(unit.slot_state.error_feedback))
        return {"end_leaf": to_hex(end_leaf), "end_state": str(path), "steps": unit.spec.training.segment_steps}

    def _evaluate(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        self._probe_at_random()
        require_environment(task, self.environment)
        spec = take_spec(task)
        parameters = load_state(spec, take_file(task, "checkpoint"))
        validation = take_split(task, spec, "validation_data")
        files = take_base(task)
        base = None if files is None else base_of(spec.model, files, spec.training.precision)
        most = evaluation_limit(spec, spec.training.rounds)
        return {"record": evaluate(spec, parameters, validation, most, self.profile.device, base).to_bytes().decode()}

    def _catch_up(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        catch_up_model(task)
        return {}

    def _prove_ready(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        try:
            work = ProofParameters(**take(task, "work", dict))
        except (TypeError, ValueError) as error:
            raise TaskError("invalid_task", "task.work", str(error)) from error
        on_gpus = self.profile.device == "cuda"
        names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if on_gpus else ["cpu"]
        threads = min(_MAX_HASH_THREADS, os.cpu_count() or 1) if on_gpus else 1
        seed = from_hex(take_hash(task, "seed"))
        torch.cuda.empty_cache()  # free what training left
        self._prover = Prover(work, seed, [torch.device(name) for name in names], threads)
        return {}

    def _prove_work(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        return {"commitment": to_hex(self._ready_prover().work(from_hex(take_hash(task, "nonce"))))}

    def _prove_open(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        answer = self._ready_prover().open(from_hex(take_hash(task, "secret")))
        Path(take(task, "output", str)).write_bytes(answer)
        self._prover = None  # frees its memory for training
        return {}

    def _ready_prover(self) -> Prover:
        if self._prover is None:
            raise TaskError("invalid_task", "task.kind", "no pool is ready")
        return self._prover

    def _probe(self, task: Task, on_progress: OnProgress) -> dict[str, Any]:
        return {"environment": self.environment, "profile": self.profile.name, "torch": torch.__version__}
