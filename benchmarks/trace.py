"""A production cluster's machines and tasks as nodes and jobs, or a synthetic substitute.

The trace (Alibaba cluster-trace-gpu-v2023; Weng et al., USENIX ATC 2023) is read from ``$ZOO_TRACE_DIR``, by default
``../shared/data/gpu-cluster-trace-2023`` next to the repository. This market sells whole nodes in gangs of one kind. A
task of n GPUs is therefore a gang of n nodes of one GPU model, one worker each. A node takes one job at a time and must
have the CPU and memory of one worker. Tasks without a GPU and tasks that never ran are excluded. The trace has
no sites or prices, and its model column is empty. A seed draws them; a third of the tasks accept one to three models.
"""

import csv
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from random import Random

from market.domain.nodes.placement import Node, Requirements

VARIABLE = "ZOO_TRACE_DIR"
FROM_SECONDS = 10_000_000  # nearly all tasks arrive later
_DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "gpu-cluster-trace-2023"
_PRICES = {"P100": 1.0, "T4": 1.2, "V100M16": 1.8, "V100M32": 2.2, "A10": 2.0, "G2": 2.5, "G3": 4.0}

_Record = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Machine(Node):
    """Node with a worker's resources (CPU thousandths, MiB) and its ask as a share of prices."""

    _: KW_ONLY
    cpu: int
    memory: int
    price: float

    @property
    def make(self) -> Hashable:
        """Properties that tasks select by."""
        return self.environment_class, self.cpu, self.memory


@dataclass(frozen=True, slots=True)
class TaskRequirements(Requirements):
    """Requirements of a task for each machine, including one worker's CPU and memory."""

    cpu: int = 0
    memory: int = 0

    def accepts(self, node: Node) -> bool:
        """Return whether one worker fits on the machine, and its model is accepted."""
        assert isinstance(node, Machine)
        return node.cpu >= self.cpu and node.memory >= self.memory and Requirements.accepts(self, node)


@dataclass(frozen=True, slots=True)
class Task:
    """A job: ``workers`` nodes from ``start`` for ``seconds``."""

    id: int
    start: int
    seconds: int
    workers: int
    wants: TaskRequirements


@dataclass(frozen=True, slots=True)
class Trace:
    """Records of the files; ``note`` marks synthetic ones."""

    nodes: Sequence[_Record]
    tasks: Sequence[_Record]
    note: str = ""


def read() -> Trace | None:
    """Return the trace, or None if its files are missing."""
    directory = folder()
    if not (directory / "nodes.csv").is_file() or not (directory / "tasks.csv").is_file():
        return None
    return Trace(_records(directory / "nodes.csv"), _records(directory / "tasks.csv"))


def folder() -> Path:
    """Return the folder of the trace."""
    return Path(os.environ.get(VARIABLE, _DEFAULT))


def _records(path: Path) -> list[_Record]:
    with path.open() as file:
        return list(csv.DictReader(file))


def synthetic_trace() -> Trace:
    """Return 300 synthetic machines and 500 tasks from a fixed seed; the figures mean nothing."""
    random = Random(0)
    models = random.choices(list(_PRICES), [11, 33, 5, 2, 1, 45, 3], k=300)
    nodes = [
        {"sn": f"made-up-{index}", "cpu_milli": "96000", "memory_mib": "393216", "gpu": "8", "model": model}
        for index, model in enumerate(models)
    ]
    tasks, now = [], float(FROM_SECONDS)
    for _ in range(500):
        now += random.expovariate(1 / 400)
        tasks.append(
            {
                "num_gpu": str(random.choices([1, 2, 4, 8], [90, 5, 4, 1])[0]),
                "cpu_milli": "8000",
                "memory_mib": "16384",
                "gpu_spec": "",
                "creation_time": str(int(now)),
                "scheduled_time": str(int(now)),
                "deletion_time": str(int(now + random.expovariate(1 / 8_000))),
            }
        )
    return Trace(nodes, tasks, "made-up trace: the real one is not there")


def machines(trace: Trace, seed: int) -> list[Machine]:
    """Return the trace's machines; 16 consecutive ones share a site, 64 a network and an owner."""
    random = Random(seed)
    found = []
    for index, record in enumerate(trace.nodes):
        site = index // 16
        gpus = int(record["gpu"])
        trip = 5 + site * 37 % 180 + random.randint(0, 20)
        found.append(
            Machine(
                record["sn"],
                "all",
                record["model"],
                site=f"site-{site}",
                asn=1 + site // 4,
                owner=f"owner-{site // 4}",
                round_trip_ms=trip,
                cpu=int(record["cpu_milli"]) // gpus,
                memory=int(record["memory_mib"]) // gpus,
                price=_PRICES[record["model"]] * random.uniform(0.8, 1.2) / 5,
            )
        )
    return found


def tasks(trace: Trace, seed: int) -> list[Task]:
    """Return the trace's GPU tasks that ran, by arrival; a seed draws their accepted models."""
    random = Random(seed)
    found = []
    for index, record in enumerate(trace.tasks):
        workers, ran = int(record["num_gpu"]), record["scheduled_time"]
        if workers == 0 or not ran or int(record["creation_time"]) < FROM_SECONDS:
            continue
        named = frozenset(filter(None, record["gpu_spec"].split("|")))
        if not named and random.random() < 1 / 3:
            named = frozenset(random.sample(sorted(_PRICES), random.randint(1, 3)))
        wants = TaskRequirements(
            environment_classes=named,
            cpu=int(record["cpu_milli"]) // workers,
            memory=int(record["memory_mib"]) // workers,
        )
        seconds = max(1, int(record["deletion_time"]) - int(float(ran)))
        found.append(Task(index, int(record["creation_time"]), seconds, workers, wants))
    return sorted(found, key=lambda task: (task.start, task.id))
