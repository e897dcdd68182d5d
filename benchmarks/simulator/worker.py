"""A real node's work without the market: fetch, train, upload. Ends with its input.

Reads one JSON object per line: ``{"unit": number, "task": …, "output": directory}`` starts a unit and ``{"stop":
number}`` aborts it. It writes two answers per unit. ``{"unit", "payload", "slot_state"}`` means that the result is
fixed and the next unit may begin; ``{"unit", "seconds": [fetch, train, upload]}`` that it is uploaded. ``pace`` is the
minimum of seconds per inner step, which sets the device's speed.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from training_gym.runtime.profile import CPU
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.trainer import Trainer
from zoo_compute.node.work.inputs import unit_task
from zoo_protocol.content.unixfs import cid_of_file


class _Stopped(Exception):
    """The round has ended."""


class _Worker:
    def __init__(self, directory: Path, gateway: str, rpc: str, pace: float) -> None:
        self._workspace = Workspace(directory)
        self._gateway = GatewayClient([gateway], store=self._workspace.store, timeout=60.0)
        self._rpc = rpc
        self._pace = pace
        self._trainer = Trainer(CPU)
        self._stopped: set[int] = set()
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # redirects output of libraries
        self._todo: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._fixed: queue.SimpleQueue[tuple[int, bytes, list[float]]] = queue.SimpleQueue()
        self._reply_lock = threading.Lock()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._deliver, daemon=True).start()
        self._reply({"ready": self._trainer.environment})
        while (order := self._todo.get()) is not None:
            with contextlib.suppress(_Stopped):
                self._work(order)

    def _listen(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            if "stop" in order:
                self._stopped.add(order["stop"])
            else:
                self._todo.put(order)
        self._todo.put(None)

    def _work(self, order: dict[str, Any]) -> None:
        output = Path(order["output"])
        output.mkdir(parents=True)
        marks = [time.monotonic()]
        inputs = unit_task(order["task"], self._workspace, self._gateway, self._run)
        marks.append(time.monotonic())

        def paced(report: dict[str, Any]) -> None:
            if order["unit"] in self._stopped:
                raise _Stopped
            due = marks[1] + report["step"] * self._pace
            time.sleep(max(0.0, due - time.monotonic()))

        result = self._trainer.run({"kind": "train", "output": str(output), **inputs}, paced)
        task = order["task"]
        state = self._workspace.keep_slot_state(task["job_id"], task["slot"], Path(result["slot_state"]))
        payload = Path(result["payload"]).read_bytes()
        cid = cid_of_file(payload)
        self._workspace.add_file(cid, payload)  # the slot's next unit reads it there
        if order["unit"] in self._stopped:
            raise _Stopped
        marks.append(time.monotonic())
        self._reply({"unit": order["unit"], "payload": cid, "slot_state": state})
        self._fixed.put((order["unit"], payload, marks))

    def _deliver(self) -> None:
        while True:
            unit, payload, marks = self._fixed.get()
            with httpx.Client(base_url=self._rpc, timeout=60.0) as http:
                query = {"cid-version": "1", "raw-leaves": "true"}
                http.post("/api/v0/add", params=query, files={"file": payload}).raise_for_status()
            marks.append(time.monotonic())
            self._reply({"unit": unit, "seconds": [after - before for before, after in pairwise(marks)]})

    def _run(self, task: dict[str, Any]) -> dict[str, Any]:
        return self._trainer.run(task, lambda _: None)

    def _reply(self, message: dict[str, Any]) -> None:
        with self._reply_lock:
            print(json.dumps(message), file=self._replies, flush=True)


def _end(failure: threading.ExceptHookArgs) -> None:
    """End the process when a thread fails, which the run detects."""
    threading.__excepthook__(failure)
    os._exit(1)


if __name__ == "__main__":
    threading.excepthook = _end
    _Worker(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])).serve()
