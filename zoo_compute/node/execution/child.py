"""Training child process: gives up network and programs, then runs tasks.

``executor.py`` starts it as ``python -m zoo_compute.node.execution.child PROFILE MEMORY_BYTES`` with the profile's
variables set. It reads tasks from standard input and answers on standard output (``frames.py``). The first
message is ``ready``. Each task gets any number of ``progress`` and one ``result`` or ``error``. The process ends with
its standard input.
"""

import gc
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from training_gym.spec.errors import GymError
from zoo_compute.node.execution import sandbox
from zoo_compute.node.execution.frames import encode_frame, take_frame

if TYPE_CHECKING:
    from zoo_compute.node.execution.trainer import Trainer


def load_trainer(profile_name: str) -> "Trainer":
    from training_gym.runtime.profile import profile_named
    from zoo_compute.node.execution.trainer import Trainer

    return Trainer(profile_named(profile_name))


def main(load: "Callable[[str], Trainer]" = load_trainer) -> None:
    """Serve tasks until the parent closes the pipe."""
    profile_name, memory_bytes = sys.argv[1], int(sys.argv[2])
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # prints of libraries go to the log, not between the frames
    network_removed = sandbox.enter(memory_bytes)

    # The namespace requires a single thread, and the limits must precede the imports.
    gc.disable()  # collections take a fifth of the imports' time and find nothing
    trainer = load(profile_name)
    gc.freeze()
    gc.enable()
    sandbox.release_memory()  # of the probe: a node can wait long for work
    _send(replies, {"type": "ready", "environment": trainer.environment, "network_removed": network_removed})
    for request in _requests(requests):
        sandbox.limit_processor_time(request["processor_seconds"])
        try:
            result = trainer.run(request["task"], lambda progress: _send(replies, {"type": "progress", **progress}))
            reply = {"type": "result", "result": result}
        except Exception as error:  # the parent receives every failure by code; this process continues
            reply = {"type": "error", **_describe(error)}
        sandbox.release_memory()  # of the task: a node can wait long for the next one
        _send(replies, reply)


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
    with os.fdopen(descriptor, "wb", closefd=False) as pipe:
        pipe.write(encode_frame(message))


def _describe(error: Exception) -> dict[str, str]:
    if isinstance(error, GymError):
        return {"code": error.code, "field": error.field, "message": error.message}
    text = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, MemoryError) or sandbox.is_allocation_failure(text):
        return {"code": "out_of_memory", "field": "task", "message": text}
    return {"code": "task_failed", "field": "task", "message": text}


if __name__ == "__main__":
    main()
