"""Validation loss of a checkpoint."""

import torch

from training_gym.data.dataset import Split, Tokens, validation_sequences
from training_gym.model.layout import Arrays
from training_gym.model.network import Base, Network
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingSpec

MAX_WINDOWS = 256
WINDOWS_PER_BATCH = 32
MAX_VALUES = 1 << 26
"""Limit of the values in one layer's largest result for a batch (256 MB in float32).

An untrusted model may have attention scores of 1 GB a window, of which a few are in memory at once.
"""


def validation_loss(
    spec: TrainingSpec, parameters: Arrays, validation: Split, device: str = "cpu", base: Base | None = None
) -> float:
    """Return the mean cross-entropy per token in nats, over ``MAX_WINDOWS`` windows at most."""
    return mean_loss(spec, parameters, validation_sequences(validation, MAX_WINDOWS), device, base)


def mean_loss(
    spec: TrainingSpec, parameters: Arrays, tokens: Tokens, device: str = "cpu", base: Base | None = None
) -> float:
    """Return the mean cross-entropy per token in nats over windows [W, sequence_length + 1]."""
    network = Network(spec, parameters, device, base).eval()
    windows = torch.from_numpy(tokens.astype("int64"))
    total = 0.0
    with torch.no_grad():
        for batch in torch.split(windows, windows_per_batch(spec.model)):
            total += network(batch.to(device, torch.int64)).item() * len(batch)
    return total / len(windows)


def windows_per_batch(model: ModelConfig) -> int:
    """Return the number of windows to evaluate at once, limited by a layer's memory."""
    scores, widened = (
        model.num_attention_heads * model.sequence_length**2,
        model.intermediate_size * model.sequence_length,
    )
    return max(1, min(WINDOWS_PER_BATCH, MAX_VALUES // max(scores, widened)))
