"""The direction in which payloads raise the loss most."""

import numpy as np
import torch

from benchmarks.robustness.adaptive import Wide, longest, unit
from training_gym.aggregate.outer_step import OuterState, outer_step
from training_gym.data.dataset import one_shard, validation_samples
from training_gym.data.samples import collate
from training_gym.data.shards import Tokens
from training_gym.model.layout import Arrays
from training_gym.model.network import Network, rows_on
from training_gym.model.tensors import unflatten
from training_gym.spec.config import TrainingSpec

_WINDOWS, _CHARACTERS = 256, 1 << 20
_STEPS = 3


def ascent(spec: TrainingSpec, parameters: Arrays, outer: OuterState, honest: Wide, bad: int, text: Tokens) -> Wide:
    """Return the direction of ``bad`` payloads after which the next model has the largest loss.

    It is the raw gradient, which honest payloads of Muon are nearly orthogonal to. It turns along the way, so it is
    taken at a few points.

    Args:
        parameters: the round's start.
        honest: payloads of the round, one a row.
        text: training text, of which the loss is taken.
    """
    share = bad / (len(honest) + bad)
    training, mean = spec.training, ((1 - share) * honest.mean(axis=0)).astype(np.float32)
    expected = outer_step(spec, parameters, mean, outer).parameters
    length = share * longest(honest, bad) * training.outer_learning_rate * (1 + training.outer_momentum)
    rows = rows_on("cpu", collate(validation_samples(one_shard(spec, text[:_CHARACTERS]), _WINDOWS)))
    direction = best = np.zeros(spec.num_parameters())
    most = -np.inf
    for _ in range(_STEPS + 1):
        moved = unflatten(spec, (length * direction).astype(np.float32))
        network = Network(spec, {name: expected[name] - part for name, part in moved.items()}, "cpu").eval()
        trained = network.trained()
        loss = network.losses(rows).mean()
        if direction.any() and loss.item() > most:
            best, most = direction, loss.item()
        gradients = torch.autograd.grad(loss, [trained[name] for name in sorted(trained)])
        gradient = np.concatenate([one.numpy().ravel() for one in gradients])
        direction = unit(direction - unit(gradient))
    return best
