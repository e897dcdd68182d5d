"""One hivemind peer in its own process and environment, driven by lines of JSON.

``hivemind_peer.py SETTINGS`` answers each command with a line of JSON: ``{"do": "prepare", "seed"}`` fills the tensor,
``{"do": "round"}`` averages it, ``{"do": "error", "seeds"}`` compares it with the exact mean of the vectors of these
seeds. ``SETTINGS`` is a JSON object: ``size``, ``compression`` (none, fp16 or 8bit), ``prefix``, ``timeout`` of a round
in seconds, ``addresses`` of other peers, its own ``port``, and the port ``announced`` to others.
"""

import functools
import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
answers = os.fdopen(os.dup(1), "w")  # libraries print to standard output; answers go to what it was at the start
os.dup2(2, 1)

import hivemind  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from hivemind import compression  # noqa: E402

COMPRESSIONS = {
    "none": compression.NoCompression,
    "fp16": compression.Float16Compression,
    "8bit": compression.Uniform8BitQuantization,
}


@functools.cache
def vector(size: int, seed: int) -> np.ndarray:
    """Return a vector as ``benchmarks.training.averaging_round`` does: a common part plus noise."""
    common = np.random.default_rng(0).standard_normal(size, np.float32)
    own = np.random.default_rng(seed).standard_normal(size, np.float32)
    return (common + own) * np.float32(1e-3)


@functools.cache
def exact_mean(size: int, seeds: tuple[int, ...]) -> np.ndarray:
    """Return the mean of those vectors in float64."""
    return np.mean([vector(size, seed).astype(np.float64) for seed in seeds], axis=0)


def main() -> None:
    torch.set_num_threads(1)
    settings = json.loads(sys.argv[1])
    size, timeout = settings["size"], settings["timeout"]
    dht = hivemind.DHT(
        initial_peers=settings["addresses"],
        host_maddrs=[f"/ip4/127.0.0.1/tcp/{settings['port']}"],
        announce_maddrs=[f"/ip4/127.0.0.1/tcp/{settings['announced']}"],
        start=True,
    )
    tensor = torch.zeros(size)
    averager = hivemind.averaging.DecentralizedAverager(
        [tensor],
        dht,
        prefix=settings["prefix"],
        target_group_size=4,
        min_matchmaking_time=1.0,
        request_timeout=0.5,
        allreduce_timeout=timeout,
        sender_timeout=timeout / 10,
        reducer_timeout=timeout / 5,
        compression=COMPRESSIONS[settings["compression"]](),
        start=True,
    )

    def answer(**fields: object) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    answer(addresses=[str(address) for address in dht.get_visible_maddrs()])
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "prepare":
            with averager.get_tensors() as tensors:
                tensors[0][:] = torch.from_numpy(vector(size, command["seed"]))
            answer()
        elif command["do"] == "round":
            started, group, reason = time.perf_counter(), None, ""
            try:
                group = averager.step(timeout=timeout, allow_retries=False)
            except Exception as error:  # whatever it raises is a failed round
                reason = f"{type(error).__name__}: {error}"
            answer(seconds=time.perf_counter() - started, group=len(group or ()), reason=reason[:200])
        elif command["do"] == "error":
            exact = exact_mean(size, tuple(command["seeds"]))
            with averager.get_tensors() as tensors:
                found = tensors[0].numpy().astype(np.float64)
            answer(error=float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))
    averager.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    main()
