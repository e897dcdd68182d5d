"""A real node's work without the market: fetch inputs, train, upload, with the node's own code. Ends with its input.

Reads one JSON object per line: ``{"unit": number, "task": …, "output": directory}`` starts a unit, ``{"stop": number}``
gives it up. Answers ``{"unit", "payload", "slot_state", "seconds": [fetch, train, upload]}``. ``pace``: seconds that an
inner step takes at least, so that a device has the speed that it is meant to have.
"""

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

from training_gym.profile import CPU
from zoo_compute.gateway import GatewayClient
from zoo_compute.node.inputs import unit_task
from zoo_compute.node.trainer import Trainer
from zoo_compute.node.workspace import Workspace


class _Stopped(Exception):
    """The round is over."""


class _Worker:
    def __init__(self, directory: Path, gateway: str, rpc: str, pace: float) -> None:
        self._workspace = Workspace(directory)
        self._gateway = GatewayClient([gateway], store=self._workspace.store, timeout=60.0)
        self._rpc = rpc
        self._pace = pace
        self._trainer = Trainer(CPU)
        self._stopped: set[int] = set()
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # whatever a library prints goes elsewhere
        self._todo: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._say({"ready": self._trainer.environment})
        while (order := self._todo.get()) is not None:
            try:
                self._say(self._work(order))
            except _Stopped:
                continue

    def _listen(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            if "stop" in order:
                self._stopped.add(order["stop"])
            else:
                self._todo.put(order)
        self._todo.put(None)

    def _work(self, order: dict[str, Any]) -> dict[str, Any]:
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
        marks.append(time.monotonic())
        if order["unit"] in self._stopped:
            raise _Stopped
        with httpx.Client(base_url=self._rpc, timeout=60.0) as http:
            payload = _upload(http, Path(result["payload"]))
        marks.append(time.monotonic())
        seconds = [after - before for before, after in pairwise(marks)]
        return {"unit": order["unit"], "payload": payload, "slot_state": state, "seconds": seconds}

    def _run(self, task: dict[str, Any]) -> dict[str, Any]:
        return self._trainer.run(task, lambda _: None)

    def _say(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._replies, flush=True)


def _upload(http: httpx.Client, file: Path) -> str:
    query = {"cid-version": "1", "raw-leaves": "true"}
    answer = http.post("/api/v0/add", params=query, files={"file": file.read_bytes()})
    return str(answer.raise_for_status().json()["Hash"])


if __name__ == "__main__":
    _Worker(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])).serve()
