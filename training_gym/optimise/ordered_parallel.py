"""Per-step data parallelism whose every bit is the same over any number of processes. Needs ``torch.distributed``.

A batch is cut into logical shards, one per slot, which belong to the job and not to the machines. Each shard has a
forward and a backward pass of its own, in whichever process; all shards' gradients go to all processes, and each adds
them up along one fixed tree. So a unit that eight processes trained can be trained again by one, to the same trace. An
all-reduce adds in an order that depends on how many take part, which changes the last bits.

It costs the traffic of an all-gather: every process receives each shard's gradient, where :mod:`per_step` receives one.
Processes must be of one execution profile (``training_gym.runtime.profile``).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training_gym.model.decoder import Decoder
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError


class DeterministicGroup:
    """This process's part in the default process group, for ``unit.run_unit``.

    Attributes:
        slots: whose batches this process takes; some processes may have one more than others.
        bytes_sent: of gradients handed to the all-gather so far.
    """

    def __init__(self, spec: TrainingSpec, shards: int) -> None:
        """Share ``shards`` slots out over the processes of the initialised default group.

        Raises:
            ValueError: if there are fewer shards than processes.
            SpecError: if gradients are to be compressed, which depends on who compresses what.
        """
        processes, rank = dist.get_world_size(), dist.get_rank()
        if shards < processes:
            raise ValueError(f"{shards} shards cannot be shared out over {processes} processes")
        if spec.training.powersgd_rank:
            detail = "must be 0: factors of the gradients of some shards are not those of all"
            raise SpecError("unsupported_value", "training_config.powersgd_rank", detail)
        shares = [range(shards * one // processes, shards * (one + 1) // processes) for one in range(processes)]
        self.slots: Sequence[int] = shares[rank]
        self.bytes_sent = 0
        self._most = max(len(share) for share in shares)
        self._rows = [one * self._most + place for one, share in enumerate(shares) for place in range(len(share))]

    def attach(self, decoder: Decoder) -> Callable[[Tensor], Tensor]:
        """``decoder.loss`` as the mean over all shards, whose backward pass leaves its gradients in the parameters."""
        parameters = list(decoder.parameters())

        def loss(tokens: Tensor) -> Tensor:
            found: Tensor = _MeanOfShards.apply(self, decoder, tokens, *parameters)  # type: ignore[no-untyped-call]
            return found

        return loss

    def mean(self, decoder: Decoder, tokens: Tensor) -> Tensor:
        """The loss and its gradients [1 + num_parameters], the mean over all shards of ``tokens`` and of the others.

        Args:
            tokens: [slots * batch, length], this process's shards one after the other.
        """
        mine = [_loss_and_gradients(decoder, shard) for shard in tokens.chunk(len(self.slots))]
        mine += [torch.zeros_like(mine[0])] * (self._most - len(mine))  # all send equally many
        own = torch.cat(mine)
        everybodys = own.new_empty(dist.get_world_size() * len(own))
        dist.all_gather_into_tensor(everybodys, own)
        self.bytes_sent += own.nbytes
        shards = everybodys.view(-1, len(mine[0]))[self._rows]
        return tree_sum(shards) / len(shards)


class _MeanOfShards(torch.autograd.Function):
    """The shards' gradients are made in the forward pass, each alone; the backward pass hands out their mean."""

    @staticmethod
    def forward(ctx: Any, group: DeterministicGroup, decoder: Decoder, tokens: Tensor, *parameters: Tensor) -> Tensor:
        mean = group.mean(decoder, tokens)
        sizes = [parameter.numel() for parameter in parameters]
        parts = zip(torch.split(mean[1:], sizes), parameters, strict=True)
        ctx.save_for_backward(*(part.view_as(parameter) for part, parameter in parts))
        return mean[0].clone()

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        return None, None, None, *(outer[0] * gradient for gradient in ctx.saved_tensors)


def tree_sum(rows: Tensor) -> Tensor:
    """The sum [n] of ``rows`` [k, n] along one binary tree: neighbours first, an odd one rises unchanged.

    Raises:
        ValueError: there is no row.
    """
    if not len(rows):
        raise ValueError("nothing to add up")
    while len(rows) > 1:
        pairs = len(rows) // 2
        rows = torch.cat([rows[: 2 * pairs : 2] + rows[1 : 2 * pairs : 2], rows[2 * pairs :]])
    return rows[0]


def _loss_and_gradients(decoder: Decoder, tokens: Tensor) -> Tensor:
    """One shard's [1 + num_parameters], by passes that no other shard takes part in."""
    with torch.enable_grad():
        loss = decoder.loss(tokens)
        gradients = torch.autograd.grad(loss, list(decoder.parameters()))
    return torch.cat([loss.detach().reshape(1), *(gradient.reshape(-1) for gradient in gradients)])
