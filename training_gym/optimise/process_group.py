"""Group of this machine's processes on the loopback device, met through a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from training_gym.optimise.processes import OneProcess, ReplicatedProcesses

PATIENCE = timedelta(hours=24)
"""A process waits while process 0 hashes and writes states. The end of a process ends the others at once."""
_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}


@contextmanager
def joined(meeting: Path, rank: int, count: int, device: str, sharded: bool = False) -> Iterator[OneProcess]:
    """Form a group of ``count`` processes through a new file, as process ``rank``.

    Args:
        device: ``"cpu"`` talks by gloo, ``"cuda"`` by NCCL.
        sharded: share parameters and moments instead of holding all of them in each process.
    """
    if count == 1:
        yield OneProcess()
        return
    os.environ.update(_LOOPBACK)
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=PATIENCE)
    try:
        if sharded:  # imports torch's compiler
            from training_gym.optimise.sharded_processes import ShardedProcesses

            yield ShardedProcesses()
        else:
            yield ReplicatedProcesses()
    finally:
        dist.destroy_process_group()
