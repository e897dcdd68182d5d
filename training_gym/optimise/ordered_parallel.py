"""Per-step data parallelism, bit for bit over any number of processes.

A batch is cut into logical shards, one per replica; they belong to the job, not to the machines. Each shard has its own
forward and backward pass, in any process. All processes receive all shards' gradients and add them along one fixed
tree. One process can therefore replay a unit that eight processes trained, to the same trace. An all-reduce would add
in an order that depends on the number of processes, which changes the last bits.

The cost is the traffic of an all-gather: every process receives each shard's gradient, in :mod:`parallel_steps` one.
All processes must have one execution profile (``training_gym.runtime.profile``).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training_gym.model.network import Network, Rows
from training_gym.optimise.ordered_sum import tree_sum
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError


class DeterministicGroup:
    """This process's member of the default process group, for ``unit.run_unit``.

    Attributes:
        slots: replicas whose batches this process takes; some processes may have one more than others.
        bytes_sent: bytes of gradients given to the all-gather so far.
    """

    def __init__(self, spec: TrainingSpec, shards: int) -> None:
        """Distribute ``shards`` replicas over the processes of the initialised default group.

        Raises:
            ValueError: there are fewer shards than processes.
            SpecError: gradients are compressed; the result would depend on the shares of the processes.
        """
        processes, rank = dist.get_world_size(), dist.get_rank()
        if shards < processes:
            raise ValueError(f"shards is {shards}; expected at least one for each of {processes} processes")
        if spec.training.powersgd_rank:
            detail = "must be 0, since the factors of some shards' gradients differ from those of all"
            raise SpecError("unsupported_value", "training_config.powersgd_rank", detail)
        shares = [range(shards * one // processes, shards * (one + 1) // processes) for one in range(processes)]
        self.slots: Sequence[int] = shares[rank]
        self.bytes_sent = 0
        self._most = max(len(share) for share in shares)
        self._rows = [one * self._most + place for one, share in enumerate(shares) for place in range(len(share))]

    def attach(self, network: Network) -> Callable[[Rows, float], Tensor]:
        """Return the mean ``network`` over shards; its backward pass sets the gradients."""
        parameters = list(network.trained().values())

        def loss(rows: Rows, total: float) -> Tensor:
            inputs = self, network, rows, total
            found: Tensor = _MeanOfShards.apply(*inputs, *parameters)  # type: ignore[no-untyped-call]
            return found

        return loss

    def mean(self, network: Network, rows: Rows, total: float) -> Tensor:
        """Return mean loss and gradients [1 + num_parameters]; ``rows`` are this process's."""
        share = total / len(self.slots)
        mine = [_loss_and_gradients(network, shard, share) for shard in rows.chunks(len(self.slots))]
        mine += [torch.zeros_like(mine[0])] * (self._most - len(mine))  # all processes send equally many
        own = torch.cat(mine)
        gathered = own.new_empty(dist.get_world_size() * len(own))
        dist.all_gather_into_tensor(gathered, own)
        self.bytes_sent += own.nbytes
        shards = gathered.view(-1, len(mine[0]))[self._rows]
        return tree_sum(shards) / len(shards)


class _MeanOfShards(torch.autograd.Function):
    """Function with gradients per shard; its backward pass returns their mean."""

    @staticmethod
    def forward(
        ctx: Any, group: DeterministicGroup, network: Network, rows: Rows, total: float, *parameters: Tensor
    ) -> Tensor:
        mean = group.mean(network, rows, total)
        sizes = [parameter.numel() for parameter in parameters]
        parts = zip(torch.split(mean[1:], sizes), parameters, strict=True)
        ctx.save_for_backward(*(part.view_as(parameter) for part, parameter in parts))
        return mean[0].clone()

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return None, None, None, None, *(outer[0] * gradient for gradient in ctx.saved_tensors)


def _loss_and_gradients(network: Network, rows: Rows, total: float) -> Tensor:
    with torch.enable_grad():
        loss = network(rows, total)
        gradients = torch.autograd.grad(loss, list(network.trained().values()))
    return torch.cat([loss.detach().reshape(1), *(gradient.reshape(-1) for gradient in gradients)])
