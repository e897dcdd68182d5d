"""Processes that share parameters, moments and gradients: torch's FSDP2 with an ordered sum.

FSDP2 gathers a layer's parameters for its computation and scatters its gradients afterwards. Its own reduce-scatter
adds in an order that depends on the number of processes. This one exchanges the slices and adds them along the tree.
Process p of P computes the parts p, p + P and so on, so that P neighbours of the tree are added in one exchange.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.distributed.tensor import DTensor

from training_gym.model.network import Network
from training_gym.optimise.ordered_sum import tree_sum
from training_gym.optimise.processes import ReplicatedProcesses


class _OrderedReduceScatter(ReduceScatter):
    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> None:
        assert not async_op  # FSDP2 uses the sum at once
        received = torch.empty_like(input_tensor)
        dist.all_to_all_single(received, input_tensor, group=group)
        output_tensor.copy_(tree_sum(received.view(group.size(), -1)))


class ShardedProcesses(ReplicatedProcesses):
    """Processes of the default group, each with an equal part of every trained tensor's rows."""

    def shards(self, number: int) -> Sequence[int]:
        return range(self.rank, number, self.count)

    def attach(self, network: Network) -> dict[str, Tensor]:
        trained = network.trained()
        world = dist.group.WORLD
        assert world is not None
        mesh = DeviceMesh.from_group(world, next(iter(trained.values())).device.type)
        layers = [layer for module in network.modules() if isinstance(module, nn.ModuleList) for layer in module]
        for module in (*layers, network):
            wrapped = fully_shard(module, mesh=mesh)
            wrapped.set_gradient_divide_factor(1.0)
            wrapped.set_force_sum_reduction_for_comms(True)
            wrapped.set_custom_reduce_scatter(_OrderedReduceScatter())
        return {name: cast(DTensor, one).to_local().detach() for name, one in network.trained().items()}

    def complete(self, network: Network, is_last: bool) -> None:
        cast(FSDPModule, network).set_requires_gradient_sync(is_last)

    def own(self, whole: Tensor) -> Tensor:
        rows = -(-len(whole) // self.count)
        return whole[self.rank * rows : (self.rank + 1) * rows].clone()

    def whole(self, own: Tensor, shape: Sequence[int]) -> Tensor:
        rows = -(-shape[0] // self.count)
        padded = own.new_zeros(rows, *shape[1:])
        padded[: len(own)] = own
        gathered = own.new_empty(self.count * rows, *shape[1:])
        dist.all_gather_single(gathered, padded)
        return gathered[: shape[0]]

    def take_gradient(self, parameter: Tensor) -> Tensor:
        return cast(DTensor, super().take_gradient(parameter)).to_local()

    def sum(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        return gradients  # summed by the backward passes

    def losses(self, own: Sequence[float], device: str) -> Tensor:
        return self._gathered(own, device).T.flatten()
