"""Per-step data parallelism: processes that trust each other train one unit together. Needs ``torch.distributed``.

Every process runs the same unit (slot 0's) and takes the batches of some slots; after each backward pass torch's
DistributedDataParallel averages the gradients, whole or by PowerSGD (Vogels et al., 2019), and every process makes the
same step. States, trace and result are those of any unit and alike in all processes; the state at the end, which is
what the group has trained, is kept as well (``trace.state_path(workdir, segments)``), and with it a checkpoint as after
any round: ``checkpoint.json`` and the files that it names, from which another group goes on.

The market does not run this over its nodes: no step can be replayed without the gradients of all others, and a round
would need every node's link at every step. A provider may run it over machines of its own.
"""

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor, futures, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from training_gym.model.decoder import Decoder
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError

DENSE_STEPS = 2
"""PowerSGD begins after so many dense steps of a segment: it cannot begin while buckets are still being laid out."""


class ProcessGroup:
    """This process's part in the default process group, for ``unit.run_unit``.

    Attributes:
        slots: whose batches this process takes.
        bytes_sent: of gradients handed to all-reduce so far, after compression; as many come back.
    """

    def __init__(self, spec: TrainingSpec, workers: int) -> None:
        """Share ``workers`` slots out over the processes of the initialised default group.

        Raises:
            ValueError: if the processes cannot take equally many slots, so that means would be no means.
            SpecError: if PowerSGD would never begin, as segments are so short.
        """
        processes, rank = dist.get_world_size(), dist.get_rank()
        if workers % processes:
            raise ValueError(f"{workers} slots cannot be shared out equally over {processes} processes")
        training = spec.training
        if training.powersgd_rank and training.segment_steps <= DENSE_STEPS:
            detail = (
                f"is {training.segment_steps}; PowerSGD begins after {DENSE_STEPS} of a segment's steps; choose more"
            )
            raise SpecError("out_of_range", "training_config.segment_steps", detail)
        share = workers // processes
        self.slots: Sequence[int] = range(rank * share, (rank + 1) * share)
        self.bytes_sent = 0
        self._rank_of_factors = training.powersgd_rank

    def attach(self, decoder: Decoder) -> Callable[[Tensor], Tensor]:
        """``decoder.loss``, such that its backward pass leaves the group's mean gradients in the parameters.

        Compression begins anew with each call, so that a boundary's state is all that a segment starts from.
        """
        parallel = DistributedDataParallel(_Loss(decoder))
        if self._rank_of_factors:
            state = PowerSGDState(None, self._rank_of_factors, start_powerSGD_iter=DENSE_STEPS)
            parallel.register_comm_hook(state, self._by_power_iteration)
        else:
            parallel.register_comm_hook(None, self._dense)
        return parallel

    def _dense(self, state: None, bucket: GradBucket) -> futures.Future[Tensor]:
        self.bytes_sent += bucket.buffer().nbytes
        everybody = dist.group.WORLD
        assert everybody is not None  # asked for its size in the beginning
        return allreduce_hook(everybody, bucket)

    def _by_power_iteration(self, state: PowerSGDState, bucket: GradBucket) -> futures.Future[Tensor]:
        if state.iter < DENSE_STEPS:
            self.bytes_sent += bucket.buffer().nbytes
            return powerSGD_hook(state, bucket)
        before = state.total_numel_after_compression
        reduced = powerSGD_hook(state, bucket)
        self.bytes_sent += (state.total_numel_after_compression - before) * bucket.buffer().element_size()
        return reduced


class _Loss(nn.Module):
    """The decoder's loss as a forward pass, which is what DistributedDataParallel watches."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder.loss(tokens)
