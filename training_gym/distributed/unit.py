"""One unit of work (one slot's one outer round), run whole by its worker or replayed by segments.

Running and replaying are one code path: a unit's state between two segments is a value, and a segment is a function
from one state to the next.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from training_gym.checkpoint import save_error_feedback
from training_gym.compression.wire import encode_step, uplink
from training_gym.config import TrainingConfig
from training_gym.data.dataset import training_batch
from training_gym.determinism import seed_step
from training_gym.distributed.optimizer import optimizer_step
from training_gym.distributed.trace import (
    Unit,
    UnitResult,
    boundary_leaf,
    fresh_state,
    load_boundary_state,
    state_path,
)
from training_gym.errors import SpecError, StartStateMismatch, TrainingDiverged
from training_gym.models.decoder import Decoder, build_decoder
from training_gym.models.layout import Arrays, moment_names, parameter_shapes
from training_gym.tensors import Vector, flatten, save_arrays, tensor_digest

OnStep = Callable[[int, float], None]
Train = Callable[[Unit, Arrays, range, OnStep], tuple[Arrays, float]]
"""(unit, state, inner steps, observer) -> the state after them and their mean loss in nats."""


def _ignore_step(step: int, loss: float) -> None:
    """The default observer."""


class Group(Protocol):
    """The processes that train a unit together, their gradients averaged at every step (``per_step``).

    Attributes:
        slots: whose batches this process takes; as many in every process.
    """

    slots: Sequence[int]

    def attach(self, decoder: Decoder) -> Callable[[Tensor], Tensor]:
        """``decoder.loss``, such that its backward pass leaves the group's mean gradients in the parameters."""


def run_unit(
    unit: Unit,
    workdir: Path,
    on_step: OnStep = _ignore_step,
    group: Group | None = None,
    train: Train | None = None,
) -> UnitResult:
    """Train the unit, keep the start state of each segment in ``workdir``, compress the result.

    Args:
        unit: what to train.
        workdir: existing directory for the states.
        on_step: observer of inner steps.
        group: the processes that train it together; None trains it alone.
        train: what runs in the place of :func:`train_steps`, which makes the unit a cheat's (``cheats.py``).

    Raises:
        SpecError: if the specification averages gradients at every step and there is no ``group``, or the reverse.
        TrainingDiverged: if a loss is not finite.
    """
    if (unit.spec.training.averaging == "steps") != (group is not None):
        raise SpecError("unsupported_value", "training_config.averaging", "'steps' is for a group, 'rounds' for a unit")
    state = fresh_state(unit.checkpoint, unit.spec.training)
    leaves = [boundary_leaf(unit, 0, state, unit.error_feedback)]
    for segment in range(unit.spec.segments):
        state_path(workdir, segment).write_bytes(save_arrays(state))
        end = _run_segment(unit, segment, state, on_step, train or partial(train_steps, group=group))
        state = end.state
        leaves.append(end.leaf)
    if group is not None:  # nobody joins payloads: this state is what the group has trained
        state_path(workdir, unit.spec.segments).write_bytes(save_arrays(state))
    return UnitResult(
        payload=end.payload,
        error_feedback=save_error_feedback(end.error_feedback),
        leaves=leaves,
        end_state_digest=tensor_digest(state),
        train_loss=end.loss,
        steps=unit.spec.training.inner_steps,
    )


def replay_segment(
    unit: Unit, segment: int, start_leaf: bytes, start_state: bytes | None, on_step: OnStep = _ignore_step
) -> bytes:
    """Leaf ``segment + 1`` as it must be, from the state the worker committed to as ``start_leaf``.

    Args:
        unit: the unit, with the verifier's own environment class.
        segment: which segment, from 0.
        start_leaf: leaf ``segment`` of the worker's trace.
        start_state: the revealed state file. Segment 0 starts from the checkpoint, whatever was revealed.
        on_step: observer of inner steps.

    Raises:
        StartStateMismatch: if the start state is not the committed one.
        StateError: if the revealed file is malformed.
        TrainingDiverged: if a loss is not finite.
    """
    if segment == 0:
        state = fresh_state(unit.checkpoint, unit.spec.training)
    elif start_state is None:
        raise StartStateMismatch("start_state_missing", "state", f"segment {segment} needs the revealed start state")
    else:
        state = load_boundary_state(unit.spec, start_state)
    if boundary_leaf(unit, segment, state, unit.error_feedback) != start_leaf:
        raise StartStateMismatch("start_state_mismatch", "state", f"does not hash to the committed leaf {segment}")
    return _run_segment(unit, segment, state, on_step, train_steps).leaf


@dataclass(frozen=True, slots=True)
class _SegmentEnd:
    """Where a segment ends; the payload is empty and the error feedback unchanged before the last segment."""

    state: Arrays
    payload: bytes
    error_feedback: Vector
    leaf: bytes
    loss: float


def _run_segment(unit: Unit, segment: int, state: Arrays, on_step: OnStep, train: Train) -> _SegmentEnd:
    """The segment's inner steps and, in the last one, compression."""
    steps = unit.spec.training.segment_steps
    state, loss = train(unit, state, range(segment * steps, (segment + 1) * steps), on_step)
    payload, error_feedback = b"", unit.error_feedback
    if segment + 1 == unit.spec.segments:
        payload, error_feedback = _compress(unit, state)
    leaf = boundary_leaf(unit, segment + 1, state, error_feedback, payload)
    return _SegmentEnd(state, payload, error_feedback, leaf, loss)


def train_steps(
    unit: Unit, state: Arrays, steps: range, on_step: OnStep, group: Group | None = None
) -> tuple[Arrays, float]:
    """The state after the inner ``steps``, and their mean loss; no steps leave the state as it is.

    Raises:
        TrainingDiverged: if a loss is not finite.
    """
    training = unit.spec.training
    names = list(parameter_shapes(unit.spec.model))
    decoder = build_decoder(unit.spec.model, {name: state[f"parameters.{name}"] for name in names}, unit.device)
    parameters = dict(decoder.named_parameters())
    kept = {name: moment_names(training, name, parameter.ndim) for name, parameter in parameters.items()}
    moments = {
        name: tuple(torch.tensor(state[f"{moment}.{name}"], device=unit.device) for moment in kept[name])
        for name in names
    }
    slots = [unit.slot] if group is None else group.slots
    loss_of = decoder.loss if group is None else group.attach(decoder)
    losses = []
    for step in steps:
        seed_step(training.seed, unit.round, unit.slot, step)
        batch = np.concatenate([training_batch(unit.spec, unit.train, unit.round, slot, step) for slot in slots])
        loss = loss_of(torch.from_numpy(batch).to(unit.device, torch.int64))
        decoder.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), training.gradient_clip)
        optimizer_step(training, parameters, moments, step, rate_share(training, unit.round, step))
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise TrainingDiverged("diverged", "training_config.learning_rate", f"loss is not finite at step {step}")
        on_step(step, losses[-1])
    after: Arrays = {}
    for name in names:
        after[f"parameters.{name}"] = parameters[name].detach().cpu().numpy()
        for moment, tensor in zip(kept[name], moments[name], strict=True):
            after[f"{moment}.{name}"] = tensor.cpu().numpy()
    return after, sum(losses) / max(len(losses), 1)


def rate_share(training: TrainingConfig, round_: int, step: int) -> float:
    """Share of the peak rate at an inner step: warm-up within the unit, linear decay over the job."""
    warm = min(1.0, (step + 1) / (training.warmup_steps + 1))
    done = (round_ * training.inner_steps + step) / (training.rounds * training.inner_steps)
    return warm * (1.0 - (1.0 - training.final_rate_share) * done)


def _compress(unit: Unit, state: Arrays) -> tuple[bytes, Vector]:
    """The payload of what the unit learned plus what was left unsent before, and what is left unsent now."""
    trained = flatten({name: state[f"parameters.{name}"] for name in parameter_shapes(unit.spec.model)})
    decay = np.float32(unit.spec.training.error_feedback_decay)
    wanted = decay * unit.error_feedback + (flatten(unit.checkpoint) - trained)
    payload, sent = encode_step(uplink(unit.spec), wanted)
    return payload, wanted - sent.dense()
