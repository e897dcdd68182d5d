"""Inner optimisers as functions of their state: AdamW, and Muon for hidden matrices.

They do not use ``torch.optim``, whose optimisers hide the state that a trace must commit to. They also import torch's
compiler, which takes a second and 60 MB per worker process.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from training_gym.model.layout import muon_trains
from training_gym.optimise.processes import ONE_PROCESS, OneProcess
from training_gym.runtime.determinism import tf32
from training_gym.spec.architectures import Tensor as Parameter
from training_gym.spec.config import TrainingSpec

BETA1 = 0.9
BETA2 = 0.95
EPSILON = 1e-8
MUON_BETA = 0.95
MUON_ITERATIONS = 5
MUON_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
GPU_BATCH = 1 << 23
"""Values of matrices of one shape that a GPU orthogonalises together: alone, a small one takes the time of launches.

Its five copies have at most 168 MB, in the room that estimates leave (``costs.GPU_ROOM_BYTES``).
"""


@torch.no_grad()
def optimizer_step(
    spec: TrainingSpec,
    parameters: Mapping[str, Tensor],
    moments: Mapping[str, tuple[Tensor, ...]],
    step: int,
    rate_share: float,
    processes: OneProcess = ONE_PROCESS,
) -> None:
    """Update ``parameters`` and ``moments`` in place from the parameters' gradients.

    Args:
        spec: specification with the optimiser, its rates and the parameters' roles.
        parameters: by name; matrices decay, vectors (gains and biases) do not.
        moments: by the same names, in the order of ``model.layout.moment_names``.
        step: number of earlier steps, which corrects the moments' start at zero.
        rate_share: share of the peak rates that this step uses.
        processes: processes that may hold parts of all these tensors only.
    """
    training = spec.training
    for tensor in spec.trained_tensors():
        if not muon_trains(training, tensor):
            rate, parameter = training.learning_rate * rate_share, parameters[tensor.name]
            if parameter.ndim > 1:
                parameter.mul_(1 - rate * training.weight_decay)
            mean, square = moments[tensor.name]
            _adam(parameter, _gradient(parameter), mean, square, step, rate)
    rate = training.muon_learning_rate * rate_share
    on_gpu = all(parameter.is_cuda for parameter in parameters.values())
    for batch in muon_batches(spec, GPU_BATCH if on_gpu else 1):
        rows, columns = shape = batch[0].shape
        ours = [parameters[tensor.name] for tensor in batch]
        means = [moments[tensor.name][0] for tensor in batch]
        directions = [_muon_direction(_gradient(one), mean) for one, mean in zip(ours, means, strict=True)]
        matrices = torch.stack([processes.whole(direction, shape) for direction in directions])
        del directions  # a copy of the batch
        with tf32(training.precision == "bfloat16"):
            matrices = orthogonalised(matrices)
        for parameter, matrix in zip(ours, matrices, strict=True):
            parameter.mul_(1 - rate * training.weight_decay)
            parameter.sub_(processes.own(matrix), alpha=rate * max(1.0, rows / columns) ** 0.5)


def muon_batches(spec: TrainingSpec, values: int) -> Iterator[list[Parameter]]:
    """Yield the matrices that Muon trains: of one shape together, up to so many ``values``."""
    by_shape: dict[tuple[int, ...], list[Parameter]] = {}
    for one in spec.trained_tensors():
        if muon_trains(spec.training, one):
            by_shape.setdefault(one.shape, []).append(one)
    for shape, alike in by_shape.items():
        count = max(1, values // math.prod(shape))
        yield from (alike[first : first + count] for first in range(0, len(alike), count))


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None  # the loss depends on every parameter
    return parameter.grad


def _adam(parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: int, rate: float) -> None:
    """Apply AdamW without its decay (Loshchilov and Hutter, 2019)."""
    correction1, correction2 = 1 - BETA1 ** (step + 1), 1 - BETA2 ** (step + 1)
    mean.lerp_(gradient, 1 - BETA1)
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    parameter.addcdiv_(mean, (square / correction2).sqrt_().add_(EPSILON), value=-rate / correction1)


def _muon_direction(gradient: Tensor, mean: Tensor) -> Tensor:
    """Update ``mean`` as Muon (Jordan et al., 2024) does; return its Nesterov momentum."""
    mean.lerp_(gradient, 1 - MUON_BETA)
    return gradient.lerp(mean, MUON_BETA)


@torch.no_grad()
def clip_gradients(spec: TrainingSpec, parameters: Mapping[str, Tensor], processes: OneProcess = ONE_PROCESS) -> float:
    """Scale the gradients to a joint norm of at most ``gradient_clip``; return that before.

    The norm is that of the norms of whole tensors in the order of ``parameters``, in any number of processes.
    It is not finite if a gradient is not, and then the scaled gradients are of no use.
    """
    shapes = {one.name: one.shape for one in spec.trained_tensors()}
    gradients = {name: _gradient(parameter) for name, parameter in parameters.items()}
    norms = [torch.linalg.vector_norm(processes.whole(one, shapes[name])) for name, one in gradients.items()]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    factor = (spec.training.gradient_clip / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients.values():
        gradient.mul_(factor)
    return float(norm)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return matrices [..., M, N] with singular values near one, by Newton-Schulz iteration.

    Alone or in a batch, a processor gives a matrix the same bits. A GPU selects its kernels by the batch.
    """
    a, b, c = MUON_COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x: Tensor = matrices.mT if tall else matrices
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(MUON_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
