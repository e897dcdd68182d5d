"""Processes of a training child that help with units of several parts of a batch.

They are forked from the child in its network namespace, whose only device is the loopback. Until the first such unit
they load nothing.
"""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.runtime.launch import Followers, Receive
from zoo_compute.node.execution import sandbox
from zoo_compute.node.execution.failures import describe

if TYPE_CHECKING:
    from training_gym.units.steps import Train
    from training_gym.units.trace import Unit


class ProcessGroup:
    """A training child and its followers.

    Attributes:
        processor_seconds: limit of the present task's CPU time in each process.
    """

    def __init__(self, count: int, profile_name: str, memory_bytes: int) -> None:
        self.processor_seconds = 0.0
        self._memory_bytes = memory_bytes
        self.followers = Followers(count, partial(_serve, profile_name, memory_bytes), describe)

    @contextmanager
    def training(self, task: dict[str, Any], unit: "Unit") -> Iterator["Train"]:
        """Yield the training of a unit by as many processes as its batch allows."""
        from training_gym.optimise.process_group import joined
        from training_gym.spec.costs import gpus_in_use
        from training_gym.units.steps import finish, train_together

        count = gpus_in_use(unit.spec, self.followers.count)
        meeting = Path(tempfile.gettempdir()) / f"meeting-{secrets.token_hex(8)}"
        is_sharded = count > 1 and _exceeds(unit, self._memory_bytes)
        if count > 1:
            together = {"meeting": str(meeting), "count": count, "is_sharded": is_sharded}
            self.followers.send(count, {"task": task, "seconds": self.processor_seconds, **together})
        try:
            with joined(meeting, 0, count, unit.device, is_sharded) as processes:
                yield train_together(processes)
                finish(processes, unit.device)
        finally:
            meeting.unlink(missing_ok=True)


def _exceeds(unit: "Unit", memory_bytes: int) -> bool:
    """Return whether a unit exceeds the memory that one process may use on its device."""
    import torch

    from training_gym.spec.costs import unit_memory_bytes, usable_gpu_bytes

    on_gpu = unit.device == "cuda"
    room = usable_gpu_bytes(torch.cuda.get_device_properties(0).total_memory) if on_gpu else memory_bytes
    return unit_memory_bytes(unit.spec) > room


def _serve(profile_name: str, memory_bytes: int, rank: int, receive: Receive) -> None:
    sandbox.limit(memory_bytes)
    request = receive()
    from training_gym.runtime.determinism import configure
    from training_gym.runtime.profile import profile_named

    profile = profile_named(profile_name)
    configure(profile)
    while True:
        sandbox.limit_processor_time(request["seconds"])
        _follow(request, rank, profile.device)
        sandbox.release_memory()
        request = receive()


def _follow(request: dict[str, Any], rank: int, device: str) -> None:
    from training_gym.optimise.process_group import joined
    from training_gym.units.probe import probe_unit
    from training_gym.units.steps import follow
    from zoo_compute.node.execution.tasks import take_unit

    task = request["task"]
    unit = take_unit(task, task["environment"], device)
    if task["kind"] == "probe_job":
        unit = probe_unit(unit)
    unit = replace(unit, checkpoint={}, slot_state=replace(unit.slot_state, moments={}))  # process 0 sends states
    with joined(Path(request["meeting"]), rank, request["count"], device, request["is_sharded"]) as processes:
        follow(unit, processes)
