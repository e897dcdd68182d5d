"""Names, shapes and initial values of a model's parameters, without torch.

The initial checkpoint is part of what a job commits to. A counter-based generator with exact arithmetic draws it, so
every machine computes the same bits with any torch or numpy.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from training_gym.spec.config import ModelConfig, TrainingConfig

Arrays = dict[str, NDArray[np.float32]]


def parameter_shapes(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return every parameter's shape, sorted, under the names of ``state_dict``."""
    width = model.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (model.vocab_size, width),
        "norm.weight": (width,),
        "head.weight": (model.vocab_size, width),
    }
    for layer in range(model.num_layers):
        shapes |= {
            f"blocks.{layer}.attention_norm.weight": (width,),
            f"blocks.{layer}.qkv.weight": (3 * width, width),
            f"blocks.{layer}.attention_output.weight": (width, width),
            f"blocks.{layer}.mlp_norm.weight": (width,),
            f"blocks.{layer}.mlp_up.weight": (4 * width, width),
            f"blocks.{layer}.mlp_down.weight": (width, 4 * width),
        }
    return dict(sorted(shapes.items()))


def muon_trains(training: TrainingConfig, name: str, dimensions: int) -> bool:
    """Return True if Muon trains this parameter: a matrix between hidden layers."""
    return training.optimizer == "muon" and dimensions == 2 and name.startswith("blocks.")


def moment_names(training: TrainingConfig, name: str, dimensions: int) -> tuple[str, ...]:
    """Return the inner optimiser's moments: of the gradient and, for AdamW, its square."""
    return ("exp_avg",) if muon_trains(training, name, dimensions) else ("exp_avg", "exp_avg_sq")


def initial_parameters(model: ModelConfig, seed: int) -> Arrays:
    """Return fresh parameters: norm gains 1, uniform matrices (:func:`_deviation`)."""
    return {name: _initial(name, shape, model, seed) for name, shape in parameter_shapes(model).items()}


def _initial(name: str, shape: tuple[int, ...], model: ModelConfig, seed: int) -> NDArray[np.float32]:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    key = int.from_bytes(hashlib.sha256(f"zoo-init-1/{seed}/{name}".encode()).digest()[:16], "big")
    words = np.random.Philox(key=key).random_raw(math.prod(shape))
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0  # exact, in [-1, 1)
    bound = math.sqrt(3.0) * _deviation(name, shape, model)
    return (unit * bound).astype(np.float32).reshape(shape)


def _deviation(name: str, shape: tuple[int, ...], model: ModelConfig) -> float:
    """Return 1/sqrt(inputs), less for outputs that add to the residual stream."""
    if name == "embedding.weight":
        return 1.0
    deviation = 1.0 / math.sqrt(shape[1])
    if name.endswith(("attention_output.weight", "mlp_down.weight")):
        return deviation / math.sqrt(2 * model.num_layers)
    return deviation * 0.1 if name == "head.weight" else deviation
