"""Processes of one round: workers that encode, upload, download and apply; an aggregator.

``python -m benchmarks.training.averaging_round worker|aggregator SETTINGS`` takes lines of JSON on standard input in
place of the market's calls. Payloads and updates use only the store. ``SETTINGS`` is a JSON object with the ``spec``
and the addresses ``rpc`` and ``gateway`` of the store.
"""

import functools
import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from market.platform.storage.client import Storage
from training_gym.aggregate.aggregation import DecodedPayload, admit, aggregate_decoded
from training_gym.aggregate.outer_step import catch_up, downlink, initial_outer_state
from training_gym.compress.payload_format import encode, payload_size
from training_gym.model.tensors import Vector, flatten, unflatten
from training_gym.spec.config import TrainingSpec
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.hashing import sha256


@functools.cache
def vector(size: int, seed: int) -> Vector:
    """Return a substitute of a pseudo-gradient: a common part plus equal noise; not sparse."""
    common = np.random.default_rng(0).standard_normal(size, np.float32)
    own = np.random.default_rng(seed).standard_normal(size, np.float32)
    return (common + own) * np.float32(1e-3)


@functools.cache
def exact_mean(size: int, seeds: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the mean of those vectors in float64."""
    mean: NDArray[np.float64] = np.mean([vector(size, seed).astype(np.float64) for seed in seeds], axis=0)
    return mean


class Worker:
    """Worker whose parameters start at zero; after a round they are minus the applied mean."""

    def __init__(self, spec: TrainingSpec, rpc: str, gateway: str) -> None:
        self._spec = spec
        self._storage = Storage(rpc)
        self._gateway = GatewayClient([gateway])
        self._size = spec.num_parameters()

    def prepare(self, seed: int) -> dict[str, Any]:
        """Set the state after training; not timed."""
        self._vector = vector(self._size, seed)
        start = np.full(self._size, 0, np.float32)  # unlike np.zeros, resident in memory as after training
        self._parameters = unflatten(self._spec, start)
        return {}

    def upload(self) -> dict[str, Any]:
        payload = encode(self._spec, self._vector)
        return {"cid": self._storage.put(payload, max_bytes=len(payload)).cid, "bytes": len(payload)}

    def apply(self, cid: str) -> dict[str, Any]:
        update = self._gateway.fetch(cid, max_bytes=downlink(self._spec).max_bytes)
        catch_up(self._spec, self._parameters, [update])
        return {"bytes": len(update)}

    def error(self, seeds: list[int]) -> dict[str, Any]:
        """Return the applied mean's relative L2 error and the parameters' digest; not timed."""
        exact = exact_mean(self._size, tuple(seeds))
        applied = -flatten(self._parameters).astype(np.float64)
        digest = sha256(flatten(self._parameters).tobytes()).hex()
        return {"error": float(np.linalg.norm(applied - exact) / np.linalg.norm(exact)), "digest": digest}


class Aggregator:
    """Decoder of payloads during uploads, and aggregator of those present when the round closes."""

    def __init__(self, spec: TrainingSpec, rpc: str, gateway: str) -> None:
        self._spec = spec
        self._storage = Storage(rpc)
        self._state = initial_outer_state(spec)
        self._start = unflatten(spec, np.zeros(spec.num_parameters(), np.float32))
        self._pool = ThreadPoolExecutor(2)  # one waits for storage while another decodes
        self._taking: list[Future[dict[int, DecodedPayload]]] = []

    def take(self, slot: int, cid: str) -> dict[str, Any]:
        """Start to decode; the round's close waits for it."""
        self._taking.append(self._pool.submit(self._take, slot, cid))
        return {}

    def _take(self, slot: int, cid: str) -> dict[int, DecodedPayload]:
        payload = self._storage.get(cid, max_bytes=payload_size(self._spec))
        return admit(self._spec, {slot: payload}, self._state.aggregate)

    def close(self) -> dict[str, Any]:
        taken: dict[int, DecodedPayload] = {}
        for future in self._taking:
            taken |= future.result()
        self._taking.clear()
        result = aggregate_decoded(self._spec, self._start, taken, None, self._state)
        stored = self._storage.put(result.update, max_bytes=len(result.update))
        included = [slot for slot, verdict in result.verdicts.items() if verdict.included]
        return {"cid": stored.cid, "included": included}


def main() -> None:
    """Answer each command with a line of JSON until the input ends."""
    settings = json.loads(sys.argv[2])
    role = {"worker": Worker, "aggregator": Aggregator}[sys.argv[1]]
    actor = role(TrainingSpec.from_dict(settings["spec"]), settings["rpc"], settings["gateway"])
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(getattr(actor, command.pop("do"))(**command)), flush=True)


if __name__ == "__main__":
    main()
