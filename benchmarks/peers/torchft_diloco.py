"""torchft's DiLoCo on our model, data and seed: eight replica groups as threads over gloo.

``python -m benchmarks.peers.torchft_diloco JOB``, in the peers' environment. JOB is a JSON file with the specification
(``spec``), ``workers``, ``warmup`` in steps, and the files ``train`` (tokens) and ``end`` (where the parameters go).
Prints one JSON object: the bytes that one replica handed to all-reduce. Inner AdamW and the outer Nesterov step are
torch's own.
"""

import json
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import optim
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

from training_gym.data.dataset import Split, one_shard, training_samples
from training_gym.data.samples import collate, count_of
from training_gym.model.layout import initial_parameters
from training_gym.model.network import Network, rows_on
from training_gym.model.tensors import save_arrays
from training_gym.optimise.inner import BETA1, BETA2, EPSILON
from training_gym.spec.config import TrainingSpec
from training_gym.units.steps import rate_share


class Replica:
    """One worker: its model, its optimisers and its manager."""

    def __init__(self, spec: TrainingSpec, slot: int, workers: int, lighthouse: str) -> None:
        training = spec.training
        self.spec, self.slot, self.bytes_sent = spec, slot, 0
        self.model = Network(spec, initial_parameters(spec), "cpu")
        matrices = [value for value in self.model.parameters() if value.ndim > 1]
        gains = [value for value in self.model.parameters() if value.ndim == 1]
        groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": gains, "weight_decay": 0.0}]
        self.inner = optim.AdamW(groups, lr=training.learning_rate, betas=(BETA1, BETA2), eps=EPSILON)
        self.outer = optim.SGD(
            self.model.parameters(), training.outer_learning_rate, training.outer_momentum, nesterov=True
        )
        self.store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=ProcessGroupGloo(),
            min_replica_size=workers,
            use_async_quorum=False,
            load_state_dict=self._load,
            state_dict=self._state,
            replica_id=f"worker_{slot}",
            store_addr="localhost",
            store_port=self.store.port,
            rank=0,
            world_size=1,
            lighthouse_addr=lighthouse,
            init_sync=False,  # all begin with the same parameters
        )
        reduce = self.manager.allreduce

        def counted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            self.bytes_sent += tensor.nbytes
            return reduce(tensor, *arguments, **options)

        self.manager.allreduce = counted

    def _state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "inner": self.inner.state_dict()}

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.inner.load_state_dict(state["inner"])

    def train(self, tokens: Split, warmup: int, ready: threading.Barrier) -> None:
        training = self.spec.training
        steps = training.rounds * training.inner_steps
        warmed = replace(training, warmup_steps=warmup)
        ready.wait()
        with DiLoCo(self.manager, [self.model], self.inner, self.outer, sync_every=training.inner_steps):
            for step in range(steps):
                round_, inner = divmod(step, training.inner_steps)
                samples = training_samples(self.spec, tokens, round_, self.slot, inner)
                for group in self.inner.param_groups:
                    group["lr"] = training.learning_rate * rate_share(warmed, round_, inner, step)
                self.inner.zero_grad()
                self.model(rows_on("cpu", collate(samples)), count_of(samples)).backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.gradient_clip)
                self.inner.step()
        self.manager.shutdown(wait=False)


def main(job: Path) -> None:
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    request = json.loads(job.read_text())
    spec, workers = TrainingSpec.from_dict(request["spec"]), request["workers"]
    tokens = one_shard(spec, np.load(request["train"], mmap_mode="r"))
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=workers, join_timeout_ms=60_000)
    ready = threading.Barrier(workers)
    with ThreadPoolExecutor(workers) as pool:
        replicas = list(pool.map(lambda slot: Replica(spec, slot, workers, lighthouse.address()), range(workers)))
        list(pool.map(lambda replica: replica.train(tokens, request["warmup"], ready), replicas))
    lighthouse.shutdown()
    end = {name: value.detach().numpy() for name, value in replicas[0].model.trained().items()}
    Path(request["end"]).write_bytes(save_arrays(end))
    print(json.dumps({"bytes_sent": replicas[0].bytes_sent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
