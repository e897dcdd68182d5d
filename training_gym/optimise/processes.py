"""Processes that train one unit together, to the bits of one process.

A batch has ``gradient_shards`` equal parts. Each has its own forward and backward pass, in any process, and the parts'
gradients are added along the tree of :mod:`ordered_sum`. Collectives only move bytes: none of them adds.

:class:`OneProcess` computes all parts. In :class:`ReplicatedProcesses` each process computes the parts of one subtree.
The processes exchange slices of their sums, add them, and gather the totals: twice the bytes of the gradients. The
processes of :mod:`sharded_processes` also share parameters and moments.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from training_gym.model.layout import Arrays, NamedArrays
from training_gym.model.network import Network
from training_gym.optimise.ordered_sum import tree_sum

BUCKET = 1 << 22
"""Values in one exchange, 16 MB of float32: large enough for a link, small next to a model."""


class OneProcess:
    """The only process of a unit, and what all kinds of groups have in common.

    Attributes:
        rank, count: number of this process, and of all.
    """

    rank, count = 0, 1

    def shards(self, number: int) -> Sequence[int]:
        """Return the parts of a batch, of ``number``, that this process computes, in order."""
        return range(number)

    def attach(self, network: Network) -> dict[str, Tensor]:
        """Return what this process updates of the trained parameters, by name."""
        return dict(network.trained())

    def complete(self, network: Network, is_last: bool) -> None:
        """Announce a backward pass, the last one of a part or not."""

    def own(self, whole: Tensor) -> Tensor:
        """Return what this process holds of a tensor of a parameter's shape."""
        return whole

    def whole(self, own: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the tensor of this ``shape`` of which all processes hold ``own``."""
        return own

    def take_gradient(self, parameter: Tensor) -> Tensor:
        """Return what this process holds of a parameter's gradient, and remove it."""
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None  # the loss depends on every parameter
        return gradient

    def sum(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the sum over processes of the sums of their parts."""
        return gradients

    def losses(self, own: Sequence[float], device: str) -> Tensor:
        """Return the losses of all parts of a batch in their order; ``own`` are this process's."""
        return torch.tensor(own, dtype=torch.float64, device=device)


ONE_PROCESS = OneProcess()


class ReplicatedProcesses(OneProcess):
    """Processes of the default group, which hold all parameters each; a power of two of them."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def shards(self, number: int) -> Sequence[int]:
        share = number // self.count
        return range(self.rank * share, (self.rank + 1) * share)

    def sum(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        bucket: list[Tensor] = []
        for gradient in gradients:
            if bucket and sum(one.numel() for one in bucket) + gradient.numel() > BUCKET:
                self._sum(bucket)
                bucket = []
            bucket.append(gradient)
        self._sum(bucket)
        return gradients

    def _sum(self, bucket: Sequence[Tensor]) -> None:
        """Replace the tensors by their sums over processes: each adds one slice of them."""
        sizes = [one.numel() for one in bucket]
        flat = bucket[0].new_zeros(-(-sum(sizes) // self.count) * self.count)
        torch.cat([one.reshape(-1) for one in bucket], out=flat[: sum(sizes)])
        received = torch.empty_like(flat)
        dist.all_to_all_single(received, flat)
        dist.all_gather_single(flat, tree_sum(received.view(self.count, -1)))
        for one, total in zip(bucket, torch.split(flat[: sum(sizes)], sizes), strict=True):
            one.copy_(total.view_as(one))

    def losses(self, own: Sequence[float], device: str) -> Tensor:
        return self._gathered(own, device).flatten()

    def _gathered(self, own: Sequence[float], device: str) -> Tensor:
        """Return each process's losses [count, own]."""
        mine = torch.tensor(own, dtype=torch.float64, device=device)
        found = mine.new_empty(self.count * len(own))
        dist.all_gather_single(found, mine)
        return found.view(self.count, -1)


def send_steps(steps: range | None, state: NamedArrays, device: str) -> None:
    """Send inner ``steps`` and their start state from process 0 to the others; None ends a unit."""
    given = (-1, -1) if steps is None else (steps.start, steps.stop)
    dist.broadcast(torch.tensor(given, device=device), 0)
    if steps is not None:
        for name in sorted(state):
            dist.broadcast(torch.tensor(state[name], device=device), 0)


def receive_steps(shapes: dict[str, tuple[int, ...]], device: str) -> tuple[range, Arrays] | None:
    """Return the steps and the state of :func:`send_steps`; None at the end of a unit."""
    given = torch.empty(2, dtype=torch.int64, device=device)
    dist.broadcast(given, 0)
    start, stop = given.tolist()
    if start < 0:
        return None
    state: Arrays = {}
    for name in sorted(shapes):
        array = torch.empty(shapes[name], device=device)
        dist.broadcast(array, 0)
        state[name] = array.cpu().numpy()
    return range(start, stop), state
