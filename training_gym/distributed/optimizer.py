"""The inner optimiser: AdamW (Loshchilov and Hutter, 2019), as a function of its state.

Written out rather than taken from ``torch.optim``, whose optimisers import torch's compiler (a second and 60 MB in
every worker process) and hide the state that a trace must bind.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

BETA1 = 0.9
BETA2 = 0.95
EPSILON = 1e-8


@torch.no_grad()
def adamw_step(
    parameters: Mapping[str, Tensor],
    moments: Mapping[str, tuple[Tensor, Tensor]],
    step: int,
    learning_rate: float,
    weight_decay: float,
) -> None:
    """Update ``parameters`` and ``moments`` in place from the parameters' gradients.

    Args:
        parameters: by name; matrices decay, vectors (norm gains) do not.
        moments: running mean of the gradient and of its square, by the same names.
        step: steps done before this one, for the correction of the moments' start at zero.
        learning_rate: of this step.
        weight_decay: share of a matrix, times the learning rate, that is taken away.
    """
    correction1, correction2 = 1 - BETA1 ** (step + 1), 1 - BETA2 ** (step + 1)
    for name, parameter in parameters.items():
        gradient = parameter.grad
        assert gradient is not None  # every parameter takes part in the loss
        mean, square = moments[name]
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        if parameter.ndim > 1:
            parameter.mul_(1 - learning_rate * weight_decay)
        parameter.addcdiv_(mean, (square / correction2).sqrt_().add_(EPSILON), value=-learning_rate / correction1)
