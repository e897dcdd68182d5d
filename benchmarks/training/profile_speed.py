"""Speed of whole units under a profile, and the device's peak by a matrix product."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.report import timed
from benchmarks.training import model_runs
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import ExecutionProfile
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_unit

_REPETITIONS = 5
_MATRIX_ROWS = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True, slots=True)
class Speed:
    """Rates of one device; of a CPU by the time of one core, which other load does not stretch.

    Attributes:
        tokens: of a whole unit, with its states, digests and payload.
        flops: the unit's floating-point operations, as prices count them.
        peak_flops: of a large matrix product in the same precision.
    """

    tokens: float
    flops: float
    peak_flops: float

    @property
    def peak_share(self) -> float:
        """Return the share of the peak that a unit reaches."""
        return self.flops / self.peak_flops


def has_gpu() -> bool:
    """Return whether a CUDA device can be used."""
    return torch.cuda.is_available()


def unit_speed(profile: ExecutionProfile, spec: TrainingSpec, base: Path) -> Speed:
    """Run a unit of a specification whose precision is that of the profile."""
    configure(profile)
    unit = replace(model_runs.unit_of(spec, base), device=profile.device)
    peak = _peak_flops(profile.device, spec.training.precision)
    model_runs.seconds(replace(unit, spec=model_runs.of_one_step(spec)))
    started = time.process_time()
    seconds = model_runs.seconds(unit)
    if profile.device == "cpu":
        seconds = time.process_time() - started
    training = spec.training
    tokens = training.inner_steps * training.batch_size * spec.model.sequence_length
    return Speed(tokens / seconds, flops_per_unit(spec) / seconds, peak)


def _peak_flops(device: str, precision: str) -> float:
    rows = _MATRIX_ROWS[device]
    left, right = (torch.rand(rows, rows, device=device).to(getattr(torch, precision)) for _ in range(2))

    def multiply() -> None:
        torch.mm(left, right)
        if device == "cuda":
            torch.cuda.synchronize()

    multiply()
    _, seconds = timed(multiply, _REPETITIONS, time.process_time if device == "cpu" else time.perf_counter)
    return 2 * rows**3 / seconds
