"""Validation loss of a checkpoint, and its standard error."""

from collections.abc import Sequence

import torch

from training_gym.data.dataset import Split, spread_samples
from training_gym.data.samples import Sample, collate, count_of
from training_gym.evaluate.extent import MAX_WINDOWS, WANTED_ERROR
from training_gym.evaluate.sums import LossSums
from training_gym.model.layout import Arrays
from training_gym.model.network import Base, Network, rows_on
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import rows_per_sample, samples_at_once

WINDOWS_PER_BATCH = 32
MAX_VALUES = 1 << 26
"""Limit of the values in one layer's largest result for a batch (256 MB in float32).

An untrusted model may have attention scores of 1 GB a window, of which a few are in memory at once.
"""


def evaluate(
    spec: TrainingSpec,
    parameters: Arrays,
    validation: Split,
    most: int,
    device: str = "cpu",
    base: Base | None = None,
) -> LossSums:
    """Return the sums of the objective's losses: per target, or per pair of answers.

    It takes ``MAX_WINDOWS`` samples, and doubles them until the error is below ``WANTED_ERROR`` of the loss, all
    ``most`` are taken, or the whole split is. The error is that of the mean over text like the split's.
    """
    network = Network(spec, parameters, device, base)
    found, limit = LossSums(), min(most, validation.order.size)
    while True:
        taken = range(found.samples, min(limit, max(MAX_WINDOWS, 2 * found.samples)))
        found += sums_of(spec, network, validation, taken, device)
        if found.samples == limit or found.error <= WANTED_ERROR * found.loss:
            return found


def evaluate_samples(
    spec: TrainingSpec, parameters: Arrays, validation: Split, samples: int, base: Base | None = None
) -> LossSums:
    """Return the sums over the first ``samples`` of :func:`evaluate`."""
    return sums_of(spec, Network(spec, parameters, "cpu", base), validation, range(samples), "cpu")


def sums_of(spec: TrainingSpec, network: Network, validation: Split, numbers: range, device: str) -> LossSums:
    """Return the sums over these samples, numbered in the order of ``spread_samples``.

    At most a micro-batch is in memory, so that a unit's evaluation needs no more than its training.
    """
    network.eval()
    at_once = max(1, min(samples_at_once(spec), windows_per_batch(spec.model) // rows_per_sample(spec)))
    found = LossSums()
    for start in range(numbers.start, numbers.stop, at_once):
        samples = spread_samples(validation, range(start, min(start + at_once, numbers.stop)))
        with torch.no_grad():
            losses = network.losses(rows_on(device, collate(samples))).view(len(samples), -1).double().sum(1)
        found += LossSums.of(losses.tolist(), [count_of([sample]) for sample in samples])
    return found


def validation_loss(
    spec: TrainingSpec, parameters: Arrays, validation: Split, device: str = "cpu", base: Base | None = None
) -> float:
    """Return the objective's mean loss in nats, over ``MAX_WINDOWS`` samples at most."""
    return evaluate(spec, parameters, validation, MAX_WINDOWS, device, base).loss


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
