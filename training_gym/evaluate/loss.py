"""Validation loss of a checkpoint."""

from collections.abc import Sequence

import torch

from training_gym.data.dataset import Split, validation_samples
from training_gym.data.samples import Sample, collate, count_of
from training_gym.model.layout import Arrays
from training_gym.model.network import Base, Network, rows_on
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
    """Return the objective's mean loss in nats, over ``MAX_WINDOWS`` samples at most."""
    return mean_loss(spec, parameters, validation_samples(validation, MAX_WINDOWS), device, base)


def mean_loss(
    spec: TrainingSpec, parameters: Arrays, samples: Sequence[Sample], device: str = "cpu", base: Base | None = None
) -> float:
    """Return the objective's mean loss in nats: per target, or per pair of answers.

    Args:
        spec: the job's specification.
        parameters: its trained parameters.
        samples: at least one sample.
        device: device of the computation.
        base: the base model's tensors; needed if :attr:`TrainingSpec.reads_base`.
    """
    network = Network(spec, parameters, device, base).eval()
    at_once = max(1, windows_per_batch(spec.model) // len(samples[0]))
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(samples), at_once):
            total += network(rows_on(device, collate(samples[start : start + at_once])), 1.0).item()
    return total / max(1, count_of(samples))


def windows_per_batch(model: ModelConfig) -> int:
    """Return the number of windows to evaluate at once, limited by a layer's memory."""
    scores, widened = (
        model.num_attention_heads * model.sequence_length**2,
        model.intermediate_size * model.sequence_length,
    )
    return max(1, min(WINDOWS_PER_BATCH, MAX_VALUES // max(scores, widened)))
