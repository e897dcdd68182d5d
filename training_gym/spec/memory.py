"""Memory of a unit in closed form, so that a price needs no torch."""

import math

from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingSpec

_VALUE = 4
"""Bytes of a float32."""
_LOGITS = 1 << 24
"""Logits in memory at once (``model.network.MAX_LOGITS``)."""


def unit_memory_bytes(spec: TrainingSpec) -> int:
    """Return the bytes that one unit needs at least on the device that trains it.

    They are the trained parameters, their gradients, the optimiser's moments, the error feedback, the frozen base and
    the activations of a micro-batch. Each of these is float32. Copies that a library makes are not counted.
    """
    trained, model = spec.num_parameters(), spec.model
    matrices = sum(math.prod(one.shape) for one in spec.trained_tensors() if one.role == "matrix")
    moments = 2 * trained - (matrices if spec.training.optimizer == "muon" else 0)
    base = model.num_parameters() if spec.adapter is not None else 0
    rows = (spec.training.micro_batch_size or spec.training.batch_size) * model.sequence_length
    return _VALUE * (3 * trained + moments + base + _activations(model, rows))


def _activations(model: ModelConfig, rows: int) -> int:
    """Return the values that a backward pass over ``rows`` tokens keeps."""
    heads = model.num_attention_heads * model.head_dim
    layer = 6 * model.hidden_size + 4 * heads + 3 * model.intermediate_size
    scores = 2 * model.num_attention_heads * model.sequence_length if model.attn_logit_softcapping else 0
    return rows * model.num_hidden_layers * (layer + scores) + 2 * min(rows * model.vocab_size, _LOGITS)
