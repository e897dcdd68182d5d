"""Fabricated unit results: usual size and norm, and a smooth sequence of states.

The first and last leaves match the delivered files. Only a replay reveals the false segments.
"""

from pathlib import Path

import numpy as np

from training_gym.model.layout import Arrays, NamedArrays
from training_gym.model.tensors import save_arrays
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import Unit, UnitResult, inner_digest, start_state, state_path
from training_gym.units.unit import unit_result
from zoo_protocol.hashing import from_hex

STEP_SHARE = 0.5
"""Noise per parameter and step, as a share of the learning rate; near the sum of real steps."""


def fabricate_unit(unit: Unit, workdir: Path) -> UnitResult:
    """Return a plausible result without training; write its states to ``workdir``."""
    spec, training = unit.spec, unit.spec.training
    noise = np.random.default_rng([*from_hex(unit.job_id), unit.round, unit.slot])
    deviation = STEP_SHARE * training.learning_rate * training.segment_steps
    state, feedback, digests = start_state(unit), error_feedback_digest(unit.slot_state.error_feedback), []
    for segment in range(spec.segments):
        state_path(workdir, segment).write_bytes(save_arrays(state))
        digests.append(inner_digest(unit, segment, state, feedback))
        state = _drift(state, noise, deviation)
    return unit_result(unit, digests, state, 1.2 + 0.9 / (1 + unit.round))


def _drift(state: NamedArrays, noise: np.random.Generator, deviation: float) -> Arrays:
    """Return parameters with added noise, and random moments of a usual size."""
    scale = {"parameters": deviation, "exp_avg": 1e-3, "exp_avg_sq": 1e-6}
    drifted = {}
    for name, array in state.items():
        part = name.partition(".")[0]
        step = noise.normal(0.0, scale[part], array.shape).astype(np.float32)
        drifted[name] = np.abs(step) if part == "exp_avg_sq" else array * np.float32(part == "parameters") + step
    return drifted
