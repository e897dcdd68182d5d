"""The smallest ways of doing less than a unit asks, as replacements for its training.

For tests, benchmarks and the development network's adversary; nothing in a node refers to this module. A cheat does all
else as an honest worker does: its states follow from what it did, its trace's ends are true to what it hands in.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

import numpy as np
import torch

from training_gym.data.order import window_start
from training_gym.model.layout import Arrays, parameter_shapes
from training_gym.model.tensors import Vector, flatten, unflatten
from training_gym.spec.config import ModelConfig
from training_gym.units.trace import Unit
from training_gym.units.unit import OnStep, Train, train_steps


class Attack(StrEnum):
    """What is done wrong in a segment."""

    SKIP_STEP = "skip-step"  # its last inner step is left out
    HALF_BATCH = "half-batch"  # every inner step reads half of its rows
    BF16 = "bf16"  # matrix products in bfloat16 instead of float32
    EDITED_DATA = "edited-data"  # one bit of one token of its first step's data is flipped
    STALE = "stale"  # nothing is trained: what an earlier unit learned is handed in again


def cheating(cheat: Attack, segments: Collection[int], earlier: Vector | None = None) -> Train:
    """Training that cheats in these ``segments`` and is honest in the others; for :func:`run_unit`.

    Args:
        cheat: how.
        segments: numbers of the segments, from 0.
        earlier: what an earlier unit moved the parameters by [num_parameters]; for ``STALE``, which needs it.

    Raises:
        ValueError: stale without an earlier unit.
    """
    if cheat is Attack.STALE and earlier is None:
        raise ValueError("a stale payload needs an earlier unit's")

    def train(unit: Unit, state: Arrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
        if steps.start // unit.spec.training.segment_steps not in segments:
            return train_steps(unit, state, steps, on_step)
        match cheat:
            case Attack.SKIP_STEP:
                return train_steps(unit, state, steps[:-1], on_step)
            case Attack.HALF_BATCH:
                training = replace(unit.spec.training, batch_size=unit.spec.training.batch_size // 2)
                halved = replace(unit, spec=replace(unit.spec, training=training))
                return train_steps(halved, state, steps, on_step)
            case Attack.BF16:
                with torch.autocast(unit.device, torch.bfloat16):
                    return train_steps(unit, state, steps, on_step)
            case Attack.EDITED_DATA:
                return train_steps(_edited(unit, steps.start), state, steps, on_step)
            case Attack.STALE:
                assert earlier is not None
                share = np.float32(len(steps) / unit.spec.training.inner_steps)
                return _moved(unit.spec.model, state, earlier * share), 0.0

    return train


def movement(unit: Unit, end_state: Arrays) -> Vector:
    """What a unit moved the parameters by, for a later unit's stale payload [num_parameters]."""
    ended = {name: end_state[f"parameters.{name}"] for name in parameter_shapes(unit.spec.model)}
    return flatten(ended) - flatten(unit.checkpoint)


def _edited(unit: Unit, step: int) -> Unit:
    """The unit with the first token that ``step`` reads changed by one bit."""
    windows = len(unit.train) - unit.spec.model.sequence_length
    tokens = unit.train.copy()
    tokens[window_start(unit.spec.training.seed, unit.round, unit.slot, step, 0, windows)] ^= 1
    return replace(unit, train=tokens)


def _moved(model: ModelConfig, state: Arrays, by: Vector) -> Arrays:
    """The state with its parameters moved and all else as it was."""
    moved = {f"parameters.{name}": state[f"parameters.{name}"] + part for name, part in unflatten(model, by).items()}
    return state | moved
