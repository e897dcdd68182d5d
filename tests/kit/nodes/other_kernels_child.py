"""Training child of a node whose kernels differ for the shapes of jobs alone.

``PROFILE MEMORY_BYTES PROCESSES``. The gradients of a job have other last bits.
"""

from typing import TYPE_CHECKING, Any

from zoo_compute.node.execution import child

if TYPE_CHECKING:
    from zoo_compute.node.execution.trainer import Trainer


def _load(profile_name: str) -> "Trainer":
    import torch

    from training_gym.runtime.profile import profile_named
    from training_gym.units import steps
    from zoo_compute.node.execution.trainer import Trainer

    trainer, clip = Trainer(profile_named(profile_name)), steps.clip_gradients

    def clip_otherwise(spec: Any, parameters: dict[str, torch.Tensor], processes: Any) -> float:
        for parameter in parameters.values():
            assert parameter.grad is not None
            parameter.grad.mul_(1 + 2**-20)
        return clip(spec, parameters, processes)

    steps.clip_gradients = clip_otherwise
    return trainer


if __name__ == "__main__":
    child.main(_load)
