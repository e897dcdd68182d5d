"""One unit of work (one slot's one outer round), run whole by its worker or replayed by segments.

Running and replaying are one code path: a unit's state between two segments is a value, and a segment is a function
from one state to the next.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from training_gym.checkpoint import save_error_feedback
from training_gym.compression.wire import decode, encode
from training_gym.config import TrainingSpec
from training_gym.data.dataset import Tokens, training_batch
from training_gym.determinism import seed_step
from training_gym.distributed.trace import OPTIMIZER_FIELDS, boundary_leaf, fresh_state, load_boundary_state
from training_gym.errors import StartStateMismatch, TrainingDiverged
from training_gym.models.decoder import build_decoder
from training_gym.models.layout import Arrays, parameter_shapes
from training_gym.tensors import Vector, flatten, save_arrays
from zoo_protocol.hashing import sha256
from zoo_protocol.trace import trace_root

BETAS = (0.9, 0.95)
EPSILON = 1e-8

OnStep = Callable[[int, float], None]


def _ignore_step(step: int, loss: float) -> None:
    """The default observer."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Everything that determines a unit's result.

    Attributes:
        spec: the job's specification.
        job_id: 0x hex of 32 bytes.
        round: outer round, from 0.
        slot: worker slot, from 0.
        checkpoint: the parameters that the round starts from.
        train: tokens of the training split.
        error_feedback: what this slot's earlier units left unsent [num_parameters].
        environment: environment class, 0x hex of 32 bytes.
        device: ``"cpu"`` or ``"cuda"``.
    """

    spec: TrainingSpec
    job_id: str
    round: int
    slot: int
    checkpoint: Arrays
    train: Tokens
    error_feedback: Vector
    environment: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What a worker hands in for a unit.

    Attributes:
        payload: the compressed pseudo-gradient (``compression/wire.py``).
        error_feedback: the file of what remains unsent, the input of this slot's next unit.
        leaves: one trace leaf per boundary, ``segments + 1``.
        train_loss: mean loss in nats over the last segment.
        steps: inner steps done.
    """

    payload: bytes
    error_feedback: bytes
    leaves: list[bytes]
    train_loss: float
    steps: int

    @property
    def payload_sha256(self) -> bytes:
        return sha256(self.payload)

    @property
    def trace_root(self) -> bytes:
        return trace_root(self.leaves)


def state_path(workdir: Path, segment: int) -> Path:
    """Where :func:`run_unit` keeps the state that ``segment`` starts from."""
    return workdir / f"state-{segment}.safetensors"


def run_unit(unit: Unit, workdir: Path, on_step: OnStep = _ignore_step) -> UnitResult:
    """Train the unit, keep the start state of each segment in ``workdir``, compress the result.

    Raises:
        TrainingDiverged: if a loss is not finite.
    """
    state = fresh_state(unit.checkpoint)
    leaves = [_leaf(unit, 0, state, unit.error_feedback)]
    for segment in range(unit.spec.segments):
        state_path(workdir, segment).write_bytes(save_arrays(state))
        end = _run_segment(unit, segment, state, on_step)
        state = end.state
        leaves.append(end.leaf)
    return UnitResult(
        payload=end.payload,
        error_feedback=save_error_feedback(end.error_feedback),
        leaves=leaves,
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
        state = fresh_state(unit.checkpoint)
    elif start_state is None:
        raise StartStateMismatch("start_state_missing", "state", f"segment {segment} needs the revealed start state")
    else:
        state = load_boundary_state(unit.spec, start_state)
    if _leaf(unit, segment, state, unit.error_feedback) != start_leaf:
        raise StartStateMismatch("start_state_mismatch", "state", f"does not hash to the committed leaf {segment}")
    return _run_segment(unit, segment, state, on_step).leaf


@dataclass(frozen=True, slots=True)
class _SegmentEnd:
    """Where a segment ends; the payload is empty and the error feedback unchanged before the last segment."""

    state: Arrays
    payload: bytes
    error_feedback: Vector
    leaf: bytes
    loss: float


def _run_segment(unit: Unit, segment: int, state: Arrays, on_step: OnStep) -> _SegmentEnd:
    """The segment's inner steps and, in the last one, compression."""
    steps = unit.spec.training.segment_steps
    state, loss = _train(unit, state, range(segment * steps, (segment + 1) * steps), on_step)
    payload, error_feedback = b"", unit.error_feedback
    if segment + 1 == unit.spec.segments:
        payload, error_feedback = _compress(unit, state)
    leaf = _leaf(unit, segment + 1, state, error_feedback, payload)
    return _SegmentEnd(state, payload, error_feedback, leaf, loss)


def _train(unit: Unit, state: Arrays, steps: range, on_step: OnStep) -> tuple[Arrays, float]:
    """The state after the inner ``steps``, and their mean loss."""
    training = unit.spec.training
    names = list(parameter_shapes(unit.spec.model))
    decoder = build_decoder(unit.spec.model, {name: state[f"parameters.{name}"] for name in names}, unit.device)
    parameters = dict(decoder.named_parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters.values() if p.ndim > 1], "weight_decay": training.weight_decay},
            {"params": [p for p in parameters.values() if p.ndim == 1], "weight_decay": 0.0},
        ],
        betas=BETAS,
        eps=EPSILON,
        fused=True,
    )
    for name, parameter in parameters.items():
        moments = {f: torch.tensor(state[f"{f}.{name}"], device=unit.device) for f in OPTIMIZER_FIELDS}
        optimizer.state[parameter] = {"step": torch.tensor(state["step"][0], device=unit.device), **moments}
    losses = []
    for step in steps:
        seed_step(training.seed, unit.round, unit.slot, step)
        batch = training_batch(unit.spec, unit.train, unit.round, unit.slot, step)
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * min(1.0, (step + 1) / (training.warmup_steps + 1))
        loss = decoder.loss(torch.from_numpy(batch).to(unit.device, torch.int64))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), training.gradient_clip)
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise TrainingDiverged("diverged", "training_config.learning_rate", f"loss is not finite at step {step}")
        on_step(step, losses[-1])
    after: Arrays = {"step": np.array([steps.stop], np.float32)}
    for name, parameter in parameters.items():
        after[f"parameters.{name}"] = parameter.detach().cpu().numpy()
        after |= {f"{f}.{name}": optimizer.state[parameter][f].cpu().numpy() for f in OPTIMIZER_FIELDS}
    return after, sum(losses) / len(losses)


def _compress(unit: Unit, state: Arrays) -> tuple[bytes, Vector]:
    """The payload of what the unit learned plus what was left unsent before, and what is left unsent now."""
    trained = flatten({name: state[f"parameters.{name}"] for name in parameter_shapes(unit.spec.model)})
    decay = np.float32(unit.spec.training.error_feedback_decay)
    wanted = decay * unit.error_feedback + (flatten(unit.checkpoint) - trained)
    payload = encode(unit.spec, wanted)
    return payload, wanted - decode(unit.spec, payload).dense()


def _leaf(unit: Unit, boundary: int, state: Arrays, error_feedback: Vector, payload: bytes = b"") -> bytes:
    return boundary_leaf(unit.job_id, unit.round, unit.slot, boundary, state, error_feedback, unit.environment, payload)
