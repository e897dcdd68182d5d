"""Processes for distributed training, forked from a server that has loaded torch."""

import multiprocessing
import os
from collections.abc import Sequence
from functools import cache
from multiprocessing import forkserver
from typing import Any

from training_gym.runtime.profile import CPU

TIMEOUT_SECONDS = 600
ANSWERS = object()
"""Stands for the answer queue in the arguments of :func:`in_processes`."""

_PRELOADED = [
    "torch._dynamo",  # imported late by torch's optimisers and data parallelism, for seconds
    "torch.distributed.fsdp",
    "transformers.models.llama.modeling_llama",
    "training_gym.optimise.ordered_parallel",
    "training_gym.optimise.parallel_steps",
    "training_gym.optimise.sharded_processes",
    "training_gym.units.unit",
]


@cache
def _context() -> Any:
    """Return a fork server under the CPU profile's variables, which torch reads on import."""
    before = {name: os.environ.get(name) for name in CPU.variables}
    os.environ.update(CPU.variables)
    try:
        multiprocessing.set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return multiprocessing.get_context("forkserver")


def in_processes(target: Any, given: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run ``target`` in one process for each tuple of arguments; return their sorted answers."""
    context = _context()
    answers = context.Queue()
    started = [
        context.Process(target=target, args=tuple(answers if one is ANSWERS else one for one in arguments))
        for arguments in given
    ]
    try:
        for process in started:
            process.start()
        return sorted(answers.get(timeout=TIMEOUT_SECONDS) for _ in started)
    finally:
        for process in started:
            process.join()
