"""Names, shapes and initial values of the parameters that a job trains, without torch.

The initial checkpoint is part of what a job commits to. A counter-based generator with exact arithmetic draws it, so
every machine computes the same bits with any torch or numpy. A job on a base model starts from that instead.
"""

import hashlib
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from training_gym.runtime.threads import spans
from training_gym.spec.architectures import Tensor
from training_gym.spec.config import TrainingConfig, TrainingSpec

Arrays = dict[str, NDArray[np.float32]]
NamedArrays = Mapping[str, NDArray[np.float32]]
"""Arrays by name that may be read from a file at each access."""


def parameter_shapes(spec: TrainingSpec) -> dict[str, tuple[int, ...]]:
    """Return every trained parameter's shape, sorted by name."""
    return {tensor.name: tensor.shape for tensor in spec.trained_tensors()}


def parameter_sizes(spec: TrainingSpec) -> tuple[int, ...]:
    """Return the number of values of every trained parameter, sorted by name."""
    return tuple(math.prod(tensor.shape) for tensor in spec.trained_tensors())


def muon_trains(training: TrainingConfig, tensor: Tensor) -> bool:
    """Return True if Muon trains this parameter: a matrix between hidden layers."""
    return training.optimizer == "muon" and tensor.role == "matrix"


def moment_names(training: TrainingConfig, tensor: Tensor) -> tuple[str, ...]:
    """Return the inner optimiser's moments: of the gradient and, for AdamW, its square."""
    return ("exp_avg",) if muon_trains(training, tensor) else ("exp_avg", "exp_avg_sq")


def initial_parameters(spec: TrainingSpec) -> Arrays:
    """Return fresh parameters: constant vectors, uniform matrices by ``Tensor.start``.

    A job that trains all of a base model starts from its tensors (``model.folder``) instead.
    """
    return {tensor.name: initial_tensor(tensor, spec.training.seed) for tensor in spec.trained_tensors()}


def initial_tensor(tensor: Tensor, seed: int) -> NDArray[np.float32]:
    """Return one of the :func:`initial_parameters`."""
    if len(tensor.shape) == 1 or tensor.start == 0:
        return np.full(tensor.shape, tensor.start, np.float32)
    key = int.from_bytes(hashlib.sha256(f"zoo-init-1/{seed}/{tensor.name}".encode()).digest()[:16], "big")
    words, values = np.random.Philox(key=key), np.empty(math.prod(tensor.shape), np.float32)
    for part in spans(len(values)):  # integers and doubles of a whole embedding take five times its memory
        drawn = words.random_raw(part.stop - part.start)
        unit = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0  # exact, in [-1, 1)
        values[part] = unit * (math.sqrt(3.0) * tensor.start)
    return values.reshape(tensor.shape)
