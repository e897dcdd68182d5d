"""Per-step data parallelism of trusting processes that train one unit.

Every process runs the same unit (slot 0's) and takes the batches of some replicas. After each backward pass torch's
DistributedDataParallel averages the gradients, whole or by PowerSGD (Vogels et al., 2019), and all processes make the
same step. States, trace and result are those of an ordinary unit and equal in all processes.

The end state, which is the group's result, is kept too (``trace.state_path(workdir, segments)``). So is a checkpoint
from which another group can continue: ``checkpoint.json`` and the files that it names.

The market does not use this across its nodes. No step can be replayed without all other gradients, and a round would
need every node's link at every step. A provider may use it across its own machines.
"""

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor, futures
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from training_gym.model.network import Network, Rows
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError

DENSE_STEPS = 2
"""Dense steps of a segment before PowerSGD starts: it cannot start while buckets are being laid out."""


class ProcessGroup:
    """This process's member of the default process group, for ``unit.run_unit``.

    Attributes:
        slots: replicas whose batches this process takes.
        bytes_sent: bytes of gradients given to all-reduce so far, after compression; as many return.
    """

    def __init__(self, spec: TrainingSpec, workers: int) -> None:
        """Distribute ``workers`` replicas over the processes of the initialised default group.

        Raises:
            ValueError: the processes cannot take equally many replicas, which the mean requires.
            SpecError: segments are so short that PowerSGD would never start.
        """
        processes, rank = dist.get_world_size(), dist.get_rank()
        if workers % processes:
            raise ValueError(f"workers is {workers}; expected a multiple of the {processes} processes")
        training = spec.training
        if training.powersgd_rank and training.segment_steps <= DENSE_STEPS:
            detail = f"is {training.segment_steps}; expected more than the {DENSE_STEPS} steps before PowerSGD starts"
            raise SpecError("out_of_range", "training_config.segment_steps", detail)
        share = workers // processes
        self.slots: Sequence[int] = range(rank * share, (rank + 1) * share)
        self.bytes_sent = 0
        self._rank_of_factors = training.powersgd_rank

    def attach(self, network: Network) -> Callable[[Rows, float], Tensor]:
        """Return ``network``; its backward pass leaves the group's mean gradients.

        Compression restarts with each call, so that a segment depends only on its boundary state.
        """
        parallel = DistributedDataParallel(network)
        if self._rank_of_factors:
            state = PowerSGDState(None, self._rank_of_factors, start_powerSGD_iter=DENSE_STEPS)
            parallel.register_comm_hook(state, self._by_power_iteration)
        else:
            parallel.register_comm_hook(None, self._dense)
        return parallel

    def _dense(self, state: None, bucket: GradBucket) -> futures.Future[Tensor]:
        self.bytes_sent += bucket.buffer().nbytes
        world = dist.group.WORLD
        assert world is not None  # the constructor read its size
        return allreduce_hook(world, bucket)

    def _by_power_iteration(self, state: PowerSGDState, bucket: GradBucket) -> futures.Future[Tensor]:
        if state.iter < DENSE_STEPS:
            self.bytes_sent += bucket.buffer().nbytes
            return powerSGD_hook(state, bucket)
        before = state.total_numel_after_compression
        reduced = powerSGD_hook(state, bucket)
        self.bytes_sent += (state.total_numel_after_compression - before) * bucket.buffer().element_size()
        return reduced
