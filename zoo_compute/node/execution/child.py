"""Training child process: gives up network and programs, then runs tasks.

``executor.py`` starts it as ``python -m zoo_compute.node.execution.child PROFILE MEMORY_BYTES PROCESSES`` with the
profile's variables set. It forks the other processes of a group (``follower.py``). It reads tasks from standard input
and answers on standard output (``frames.py``). The first message is ``ready``. Each task gets any number of
``progress`` and one ``result`` or ``error``. The process ends with its standard input.
"""

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from zoo_compute.node.execution import sandbox
from zoo_compute.node.execution.failures import describe
from zoo_compute.node.execution.follower import ProcessGroup
from zoo_compute.node.execution.frames import encode_frame, take_frame

if TYPE_CHECKING:
    from zoo_compute.node.execution.trainer import Trainer


_SENDING = threading.Lock()
_LOSS_SECONDS = 2.0


def load_trainer(profile_name: str) -> "Trainer":
    from training_gym.runtime.profile import profile_named
    from zoo_compute.node.execution.trainer import Trainer

    return Trainer(profile_named(profile_name))


def main(load: "Callable[[str], Trainer]" = load_trainer) -> None:
    """Serve tasks until the parent closes the pipe."""
    profile_name, memory_bytes, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # prints of libraries go to the log, not between the frames
    network_removed = sandbox.leave_network(keep_loopback=count > 1)
    if count > 1 and not network_removed and not sandbox.has_loopback():
        count = 1
    group = ProcessGroup(count, profile_name, memory_bytes)
    sandbox.limit(memory_bytes)

    # The namespace requires a single thread, and the limits must precede the imports.
    gc.disable()  # collections take a fifth of the imports' time and find nothing
    trainer = load(profile_name)
    gc.freeze()
    gc.enable()
    trainer.group = group
    sandbox.release_memory()  # of the probe: a node can wait long for work
    is_busy = threading.Event()

    def lost(failure: dict[str, str]) -> None:
        """End with the task, whose other processes can wait for the lost one."""
        with _SENDING:
            if is_busy.is_set():
                _write(replies, {"type": "error", **failure})
            group.followers.end()
            os._exit(1)

    group.followers.watch(lost)
    ready = {"environment": trainer.environment, "processes": count, "network_removed": network_removed}
    _send(replies, {"type": "ready", **ready})
    for request in _requests(requests):
        sandbox.limit_processor_time(request["processor_seconds"])
        group.processor_seconds = request["processor_seconds"]
        is_busy.set()
        try:
            result = trainer.run(request["task"], lambda progress: _send(replies, {"type": "progress", **progress}))
            reply = {"type": "result", "result": result}
        except Exception as error:  # the parent receives every failure by code; this process continues
            reply = {"type": "error", **describe(error)}
            if count > 1 and reply["code"] == "task_failed":
                time.sleep(_LOSS_SECONDS)  # if a process was lost, `lost` ends this one
        sandbox.release_memory()  # of the task: a node can wait long for the next one
        with _SENDING:
            is_busy.clear()
            _write(replies, reply)


def _requests(descriptor: int) -> Iterator[dict[str, Any]]:
    """Yield requests, read by a thread, so that the parent's death ends this process."""
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        buffer = bytearray()
        while chunk := os.read(descriptor, 1 << 16):
            buffer += chunk
            while (request := take_frame(buffer)) is not None:
                waiting.put(request)
        os._exit(0)

    threading.Thread(target=read, name="requests", daemon=True).start()
    while True:
        yield waiting.get()


def _send(descriptor: int, message: dict[str, Any]) -> None:
    with _SENDING:
        _write(descriptor, message)


def _write(descriptor: int, message: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "wb", closefd=False) as pipe:
        pipe.write(encode_frame(message))


if __name__ == "__main__":
    main()
