"""A production cluster's stream of jobs on a small market, placed by our objective, by first fit and at random.

The trace (Alibaba cluster-trace-gpu-v2023; Weng et al., USENIX ATC 2023) is read from ``$ZOO_TRACE_DIR``, by default
``../shared/data/gpu-cluster-trace-2023`` beside the repository. Its machines are the nodes and its tasks the jobs, as
this market sells capacity: whole nodes, gangs of one kind. A task of n GPUs is a gang of n nodes of one GPU model,
one worker each; a node takes one job at a time and must have the CPU and memory of one worker. Tasks without a GPU and
tasks that never ran are left out. The trace names no sites, prices or models wanted: a seed draws them (a third of the
tasks accept one to three models only). All three rules see the same stream and the same queue: who came first is
placed first, who does not fit is passed over, and nodes are held back for who has waited an hour.
"""

import csv
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import combinations
from pathlib import Path
from random import Random

from benchmarks.report import Row, progress, row, run
from market.domain.placement import Candidate, Node, Requirements, choose, gang_cost

TRACE = "ZOO_TRACE_DIR"
DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "gpu-cluster-trace-2023"
SUPPLY = 64
PATIENCE_SECONDS = 3_600
FROM_SECONDS = 10_000_000  # nearly all tasks come after this
LARGE = 10_000
_PRICES = {"P100": 1.0, "T4": 1.2, "V100M16": 1.8, "V100M32": 2.2, "A10": 2.0, "G2": 2.5, "G3": 4.0}

Policy = Callable[[int, Sequence[Candidate], Random], list[Candidate]]


@dataclass(frozen=True, slots=True)
class Machine:
    """A node with what a worker on it may use: thousandths of a CPU, MiB."""

    node: Node
    cpu: int
    memory: int
    price: float


@dataclass(frozen=True, slots=True)
class Task:
    """A job: ``workers`` nodes from ``start`` for ``seconds``, with CPU and memory for each worker."""

    id: int
    start: int
    seconds: int
    workers: int
    cpu: int
    memory: int
    requirements: Requirements


@dataclass
class Outcome:
    """What came of one replay. ``busy_seconds`` and ``span_seconds`` run from the first arrival to the last."""

    waits: list[float] = field(default_factory=list)
    busy_seconds: float = 0.0
    span_seconds: float = 0.0
    costs: list[float] = field(default_factory=list)
    sites: list[float] = field(default_factory=list)
    capacity_violations: int = 0
    model_violations: int = 0


def ours(size: int, candidates: Sequence[Candidate], _random: Random) -> list[Candidate]:
    """The market's own choice, of the best gang of any one model."""
    by_model: dict[str, list[Candidate]] = {}
    for one in candidates:
        by_model.setdefault(one.node.environment_class, []).append(one)
    gangs = [choose(size, of_model) for of_model in by_model.values() if len(of_model) >= size]
    return min(gangs, key=gang_cost, default=[])


def first_fit(size: int, candidates: Sequence[Candidate], _random: Random) -> list[Candidate]:
    """The first that come, of the first model that has enough."""
    taken: dict[str, list[Candidate]] = {}
    for one in candidates:
        gang = taken.setdefault(one.node.environment_class, [])
        gang.append(one)
        if len(gang) == size:
            return gang
    return []


def at_random(size: int, candidates: Sequence[Candidate], random: Random) -> list[Candidate]:
    """Any, of any model that has enough."""
    counts = Counter(one.node.environment_class for one in candidates)
    models = sorted(model for model, count in counts.items() if count >= size)
    if not models:
        return []
    model = random.choices(models, [counts[model] for model in models])[0]
    return random.sample([one for one in candidates if one.node.environment_class == model], size)


POLICIES: dict[str, Policy] = {"ours": ours, "first_fit": first_fit, "random": at_random}


def measure(quick: bool) -> list[Row]:
    """All rows."""
    directory = Path(os.environ.get(TRACE, DEFAULT))
    if not (directory / "nodes.csv").is_file() or not (directory / "tasks.csv").is_file():
        sys.exit(f"The trace is not in {directory}: put nodes.csv and tasks.csv there, or name the folder in {TRACE}.")
    seeds = range(1 if quick else 5)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in POLICIES}
    for seed in seeds:
        machines = read_machines(directory / "nodes.csv", seed)
        tasks = read_tasks(directory / "tasks.csv", seed)[: 500 if quick else None]
        supply = Random(seed).sample(machines, SUPPLY)
        tasks = [task for task in tasks if _fits_somewhere(task, supply)]
        for name, policy in POLICIES.items():
            progress(f"seed {seed}: {len(tasks):,} jobs on {SUPPLY} nodes, {name}")
            outcomes[name].append(replay(supply, tasks, policy, seed))
    decisions, cases = (50, 20) if quick else (100, 300)
    speeds = {count: [_speed(directory, count, seed, decisions) for seed in seeds] for count in (1_213, LARGE)}
    gaps = [_gaps(seed, cases) for seed in seeds]
    mine = outcomes["ours"]
    jobs = f"of {len(mine[0].waits):,} jobs or a few less on {SUPPLY} of the nodes"
    return [
        row("decisions_per_second_1213", "1/s", speeds[1_213], "all nodes of the trace free"),
        row("decisions_per_second_10000", "1/s", speeds[LARGE], "its nodes several times over"),
        row("capacity_violations", "count", [one.capacity_violations for one in mine]),
        row("model_violations", "count", [one.model_violations for one in mine]),
        row("wait_p50_seconds", "s", _percentile(mine, 50), jobs),
        row("wait_p99_seconds", "s", _percentile(mine, 99)),
        *_rows("", mine),
        *(found for name in ("first_fit", "random") for found in _peer(name, outcomes[name])),
        row("brute_force_gap", "share", list(map(statistics.fmean, gaps)), f"mean of {cases}; gangs of 2 to 4 of 10"),
        row("brute_force_gap_worst", "share", list(map(max, gaps)), "the worst of them"),
    ]


def _peer(name: str, outcomes: Sequence[Outcome]) -> list[Row]:
    waits = [row(f"{name}_wait_p{share}_seconds", "s", _percentile(outcomes, share)) for share in (50, 99)]
    return [*waits, *_rows(f"{name}_", outcomes)]


def _rows(prefix: str, outcomes: Sequence[Outcome]) -> list[Row]:
    return [
        row(f"{prefix}wait_mean_seconds", "s", [statistics.fmean(one.waits) for one in outcomes]),
        row(f"{prefix}utilisation", "share", [one.busy_seconds / one.span_seconds / SUPPLY for one in outcomes]),
        row(f"{prefix}cost_per_node", "", [statistics.fmean(one.costs) for one in outcomes], "objective, mean"),
        row(f"{prefix}sites_per_node", "", [statistics.fmean(one.sites) for one in outcomes], "of gangs of 2 or more"),
    ]


def _percentile(outcomes: Sequence[Outcome], share: int) -> list[float]:
    return [statistics.quantiles(one.waits, n=100, method="inclusive")[share - 1] for one in outcomes]


def read_machines(path: Path, seed: int) -> list[Machine]:
    """The trace's machines; sixteen in a row of the file share a site, four sites a network and an owner."""
    random = Random(seed)
    machines = []
    with path.open() as file:
        for index, record in enumerate(csv.DictReader(file)):
            site = index // 16
            gpus = int(record["gpu"])
            node = Node(
                record["sn"],
                "all",
                record["model"],
                site=f"site-{site}",
                asn=1 + site // 4,
                owner=f"owner-{site // 4}",
                round_trip_ms=5 + site * 37 % 180 + random.randint(0, 20),
            )
            price = _PRICES[record["model"]] * random.uniform(0.8, 1.2) / 5
            machines.append(Machine(node, int(record["cpu_milli"]) // gpus, int(record["memory_mib"]) // gpus, price))
    return machines


def read_tasks(path: Path, seed: int) -> list[Task]:
    """The trace's GPU tasks that ran, by arrival; a seed draws which models a third of them accept."""
    random = Random(seed)
    tasks = []
    with path.open() as file:
        for index, record in enumerate(csv.DictReader(file)):
            workers, ran = int(record["num_gpu"]), record["scheduled_time"]
            if workers == 0 or not ran or int(record["creation_time"]) < FROM_SECONDS:
                continue
            named = frozenset(filter(None, record["gpu_spec"].split("|")))
            if not named and random.random() < 1 / 3:
                named = frozenset(random.sample(sorted(_PRICES), random.randint(1, 3)))
            tasks.append(
                Task(
                    index,
                    int(record["creation_time"]),
                    max(1, int(record["deletion_time"]) - int(float(ran))),
                    workers,
                    int(record["cpu_milli"]) // workers,
                    int(record["memory_mib"]) // workers,
                    Requirements(environment_classes=named),
                )
            )
    return sorted(tasks, key=lambda task: (task.start, task.id))


def _suits(task: Task, machine: Machine) -> bool:
    return machine.cpu >= task.cpu and machine.memory >= task.memory and task.requirements.accepts(machine.node)


def _fits_somewhere(task: Task, machines: Sequence[Machine]) -> bool:
    """Whether enough nodes of one model could ever serve the task."""
    models = Counter(machine.node.environment_class for machine in machines if _suits(task, machine))
    return max(models.values(), default=0) >= task.workers


def replay(machines: Sequence[Machine], tasks: Sequence[Task], policy: Policy, seed: int) -> Outcome:
    """Let the tasks come and go on a virtual clock, and check every placement."""
    random, outcome = Random(seed), Outcome()
    by_name = {machine.node.provider: machine for machine in machines}
    free, running, waiting = set(by_name), list[tuple[int, int, list[str]]](), list[Task]()
    suitable = {task.id: [machine for machine in machines if _suits(task, machine)] for task in tasks}
    coming, now = list(reversed(tasks)), 0
    while coming or waiting:
        now = min(coming[-1].start if coming else running[0][0], running[0][0] if running else coming[-1].start)
        while running and running[0][0] <= now:
            free.update(heappop(running)[2])
        while coming and coming[-1].start <= now:
            waiting.append(coming.pop())
        held: set[str] = set()
        for task in list(waiting):
            if len(free) - len(held) < task.workers:
                continue
            usable = [one for one in suitable[task.id] if one.node.provider in free and one.node.provider not in held]
            gang = policy(task.workers, [Candidate(one.node, price=one.price) for one in usable], random)
            if not gang:
                if not held and now - task.start >= PATIENCE_SECONDS:
                    held = {machine.node.provider for machine in usable}
                continue
            waiting.remove(task)
            names = [one.node.provider for one in gang]
            _check(outcome, task, [by_name[name] for name in names], free)
            free.difference_update(names)
            heappush(running, (now + task.seconds, task.id, names))
            _book(outcome, task, gang, now, tasks[-1].start)
    outcome.span_seconds = tasks[-1].start - tasks[0].start
    return outcome


def _check(outcome: Outcome, task: Task, gang: Sequence[Machine], free: set[str]) -> None:
    """Count what no placement may do, from the trace's own figures and not from what the policy was offered."""
    names = {machine.node.provider for machine in gang}
    small = any(machine.cpu < task.cpu or machine.memory < task.memory for machine in gang)
    outcome.capacity_violations += len(names) != task.workers or not names <= free or small
    models = {machine.node.environment_class for machine in gang}
    wanted = task.requirements.environment_classes
    outcome.model_violations += len(models) != 1 or bool(wanted and not models <= wanted)


def _book(outcome: Outcome, task: Task, gang: Sequence[Candidate], now: int, last_arrival: int) -> None:
    outcome.waits.append(now - task.start)
    outcome.busy_seconds += max(0, min(now + task.seconds, last_arrival) - now) * task.workers
    outcome.costs.append(gang_cost(gang) / task.workers)
    if task.workers > 1:
        outcome.sites.append(len({one.node.site for one in gang}) / task.workers)


def _speed(directory: Path, count: int, seed: int, decisions: int) -> float:
    """Decisions a second with ``count`` free nodes: filter by the requirements, then choose."""
    machines = read_machines(directory / "nodes.csv", seed)
    machines = (machines * (count // len(machines) + 1))[:count]
    tasks = Random(seed).sample(read_tasks(directory / "tasks.csv", seed), decisions)
    progress(f"{decisions} decisions among {count:,} nodes")
    started = time.perf_counter()
    for task in tasks:
        suitable = [Candidate(one.node, price=one.price) for one in machines if _suits(task, one)]
        ours(task.workers, suitable, Random(0))
    return decisions / (time.perf_counter() - started)


def _gaps(seed: int, cases: int) -> list[float]:
    """How much dearer the chosen gang is than the best of all, as a share, in random small markets."""
    random, gaps = Random(seed), []
    for _ in range(cases):
        candidates = [
            Candidate(
                Node(
                    str(index),
                    "all",
                    "class",
                    site=random.choice("abcd"),
                    asn=random.randint(1, 3),
                    owner=random.choice("xyz"),
                    round_trip_ms=random.randint(1, 400),
                ),
                price=random.random(),
                missing=random.choice([0.0, 0.5, 1.0]),
            )
            for index in range(10)
        ]
        size = random.randint(2, 4)
        best = min(map(gang_cost, combinations(candidates, size)))
        gaps.append(gang_cost(choose(size, candidates)) / best - 1)
    return gaps


if __name__ == "__main__":
    run("placement", measure)
