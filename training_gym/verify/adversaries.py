"""Minimal attacks on a unit, as replacements for its training.

Only tests, benchmarks and the development network's adversary use this module, never a node. Apart from the attack, an
adversary behaves honestly: its states follow from its computation, and its trace's ends match its result.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

import numpy as np
import torch

from training_gym.data.dataset import unit_places
from training_gym.model.layout import Arrays, NamedArrays, parameter_shapes
from training_gym.model.tensors import Vector, flatten, unflatten
from training_gym.spec.config import TrainingSpec
from training_gym.units.steps import OnStep, Train, train_steps
from training_gym.units.trace import Unit


class Attack(StrEnum):
    """Kind of false work in a segment."""

    SKIP_STEP = "skip-step"  # omits the segment's last inner step
    HALF_BATCH = "half-batch"  # reads half of the rows in every inner step
    BF16 = "bf16"  # computes matrix products in bfloat16 instead of float32
    EDITED_DATA = "edited-data"  # flips one bit of one token of the first step's data
    STALE = "stale"  # trains nothing: submits an earlier unit's result again


def dishonest_training(
    attack: Attack, segments: Collection[int], earlier: Vector | None = None, honest: Train = train_steps
) -> Train:
    """Return training for :func:`run_unit` that attacks ``segments``, honest in others.

    Args:
        segments: numbers of the segments, from 0.
        earlier: an earlier unit's change of the parameters [num_parameters]; ``STALE`` requires it.
        honest: training of steps without or around the attack, perhaps by several processes.

    Raises:
        ValueError: ``STALE`` without ``earlier``.
    """
    if attack is Attack.STALE and earlier is None:
        raise ValueError("earlier is None; expected an earlier unit's change for a stale payload")

    def train(unit: Unit, state: NamedArrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
        if steps.start // unit.spec.training.segment_steps not in segments:
            return honest(unit, state, steps, on_step)
        match attack:
            case Attack.SKIP_STEP:
                return honest(unit, state, steps[:-1], on_step)
            case Attack.HALF_BATCH:
                training = replace(unit.spec.training, batch_size=unit.spec.training.batch_size // 2)
                halved = replace(unit, spec=replace(unit.spec, training=training))
                return honest(halved, state, steps, on_step)
            case Attack.BF16:
                with torch.autocast(unit.device, torch.bfloat16):
                    return honest(unit, state, steps, on_step)
            case Attack.EDITED_DATA:
                return honest(_edited(unit, steps.start), state, steps, on_step)
            case Attack.STALE:
                assert earlier is not None
                share = np.float32(len(steps) / unit.spec.training.inner_steps)
                return _moved(unit.spec, state, earlier * share), 0.0

    return train


def parameter_change(unit: Unit, end_state: NamedArrays) -> Vector:
    """Return a unit's change of the parameters [num_parameters], for a stale payload."""
    ended = {name: end_state[f"parameters.{name}"] for name in parameter_shapes(unit.spec)}
    return flatten(ended) - flatten(unit.checkpoint)


def _edited(unit: Unit, step: int) -> Unit:
    assert unit.train is not None
    shard, sample = unit_places(unit.spec, unit.train.order, unit.round, unit.slot, range(step, step + 1))[0]
    return replace(unit, train=unit.train.with_changed_token(shard, sample))


def _moved(spec: TrainingSpec, state: NamedArrays, by: Vector) -> Arrays:
    moved = {f"parameters.{name}": state[f"parameters.{name}"] + part for name, part in unflatten(spec, by).items()}
    return {**state, **moved}
