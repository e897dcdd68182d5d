"""One hivemind peer in its own process and environment, driven by lines of JSON.

``hivemind_peer.py SIZE none|fp16|8bit PREFIX [ADDRESS ...]`` answers each command with a line of JSON:
``{"do": "prepare", "seed"}`` fills the tensor, ``{"do": "round", "timeout"}`` averages it, ``{"do": "error", "seeds"}``
compares it with the exact mean of the vectors of these seeds.
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
    size, chosen, prefix, addresses = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    dht = hivemind.DHT(initial_peers=addresses, host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
    tensor = torch.zeros(size)
    averager = hivemind.averaging.DecentralizedAverager(
        [tensor],
        dht,
        prefix=prefix,
        target_group_size=4,
        min_matchmaking_time=1.0,
        request_timeout=0.5,
        allreduce_timeout=30.0,
        sender_timeout=3.0,
        reducer_timeout=6.0,
        compression=COMPRESSIONS[chosen](),
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
                group = averager.step(timeout=command["timeout"], allow_retries=False)
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
