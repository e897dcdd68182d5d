"""Probe of a job's own shapes: two steps whose result depends on the specification alone.

Libraries of GPUs select kernels by shape, so the environment class's probe of another shape does not cover a job.
The probe trains on made-up tokens from fresh parameters: a node that joins in a later round computes the same.
"""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from training_gym.data.dataset import Split, one_shard
from training_gym.data.shards import DTYPES
from training_gym.model.layout import initial_tensor
from training_gym.model.tensors import LazyArrays, tensor_digest
from training_gym.spec.config import TrainingSpec
from training_gym.units.replica_state import ReplicaState
from training_gym.units.steps import Train, ignore_step
from training_gym.units.trace import Unit, boundary_shapes, start_state
from zoo_protocol.hashing import to_hex

STEPS = 2
"""The second step starts from moments that are not zero."""

_NO_JOB = to_hex(bytes(32))


def probe_unit(unit: Unit) -> Unit:
    """Return the probe of a unit's job, with tensors that are made at each access."""
    spec, train = replace(unit.spec, replicas=1), unit.train  # one replica reads all samples
    assert train is not None
    parameters = {tensor.name: partial(initial_tensor, tensor, spec.training.seed) for tensor in spec.trained_tensors()}
    moments = {name: shape for name, shape in boundary_shapes(spec).items() if not name.startswith("parameters.")}
    zeros = {name: partial(_zeros, shape) for name, shape in moments.items()}
    return Unit(
        spec=spec,
        job_id=_NO_JOB,
        round=0,
        slot=0,
        checkpoint=LazyArrays(parameters),
        train=_split(spec, train),
        slot_state=ReplicaState(np.empty(0, np.float32), LazyArrays(zeros), 0),
        environment=unit.environment,
        device=unit.device,
        base=unit.base,
    )


def probe_digest(probe: Unit, train: Train) -> bytes:
    """Return the tensor digest (32 bytes) of parameters and moments after the probe's steps.

    Raises:
        TrainingDiverged: a loss or a gradient is not finite.
    """
    return tensor_digest(train(probe, start_state(probe), range(STEPS), ignore_step)[0])


def _zeros(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def _split(spec: TrainingSpec, train: Split) -> Split:
    """Return full rows of made-up tokens for all steps; one sample of a text has two documents.

    Borders of documents select other kernels of attention, and the order puts that sample into one of the steps.
    """
    layout, length = train.layout, spec.model.sequence_length
    samples = STEPS * spec.training.batch_size
    row = length + 1
    count = samples * layout.rows * row if layout.rows else samples * length + 1
    words = hashlib.shake_256(f"zoo-job-probe-1/{spec.training.seed}".encode()).digest(4 * count)
    tokens = np.frombuffer(words, "<u4") % spec.model.vocab_size
    if layout.separator is not None:
        tokens[tokens == layout.separator] = (layout.separator + 1) % spec.model.vocab_size
        tokens[length // 2] = layout.separator
    content = tokens.astype(DTYPES[layout.dtype]).tobytes()
    if not layout.rows:
        return one_shard(spec, content, layout)
    offsets = np.arange(0, count + 1, row, dtype="<u4").tobytes()
    mask = np.packbits(np.ones(count, np.uint8), bitorder="little").tobytes()
    return one_shard(spec, offsets + content + mask, layout, samples)
