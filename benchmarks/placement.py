"""Placement of a cluster's jobs on a small market: our objective, first fit, and random.

:mod:`benchmarks.trace` describes the jobs. All rules see the same jobs, limits and queue. Jobs are placed in the order
of arrival, and a job that does not fit is skipped. A job that has waited an hour gets a reservation. Only ours uses the
requirements of recent jobs to see which nodes are scarce; "blind" is ours without that.

The weight of scarcity was chosen on the first half of the trace, on 32, 64 and 128 machines. The rows ``held_out_*``
are from its second half, on other numbers of machines.
"""

import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import combinations
from random import Random

from benchmarks import trace
from benchmarks.report import Row, progress, row, run
from benchmarks.trace import Machine, Task, Trace
from market.domain.nodes.placement import Candidate, Node, choose, gang_cost
from market.domain.nodes.pool import Pool
from market.domain.nodes.scarcity import RECENT, Ask, scarcity

SUPPLY = 64
HELD_OUT = (48, 96)
PATIENCE_SECONDS = 3_600
LARGE = 10_000
REFRESH = 50  # jobs between two computations of scarcity

Policy = Callable[[int, Sequence[Candidate], Random], list[Candidate]]


@dataclass
class Outcome:
    """Result of one replay. ``utilisation``: share of the nodes' time, first to last arrival."""

    waits: list[float] = field(default_factory=list)
    utilisation: float = 0.0
    costs: list[float] = field(default_factory=list)
    sites: list[float] = field(default_factory=list)
    capacity_violations: int = 0
    model_violations: int = 0


class RecentDemand:
    """Requirements of recent jobs, and the scarcity of machines that follows."""

    def __init__(self, supply: Sequence[Machine]) -> None:
        self._supply = supply
        self._recent: deque[Ask] = deque(maxlen=RECENT)
        self._count = 0
        self.scarcity: dict[Hashable, float] = {}  # by kind of machine, last computed

    def note(self, task: Task) -> None:
        """Record an arrived job."""
        self._recent.append(Ask(task.wants, task.workers))
        self._count += 1
        if self._count % REFRESH == 0:
            self.scarcity = scarcity(self._recent, self._supply)


def ours(size: int, candidates: Sequence[Candidate], _random: Random) -> list[Candidate]:
    """Return the market's own choice: the best gang of one model."""
    by_model: dict[str, list[Candidate]] = {}
    for one in candidates:
        by_model.setdefault(one.node.environment_class, []).append(one)
    gangs = [choose(size, of_model) for of_model in by_model.values() if len(of_model) >= size]
    return min(gangs, key=gang_cost, default=[])


def blind(size: int, candidates: Sequence[Candidate], random: Random) -> list[Candidate]:
    """Return the choice of ours without scarcity."""
    return ours(size, [replace(one, scarcity=0.0) for one in candidates], random)


def first_fit(size: int, candidates: Sequence[Candidate], _random: Random) -> list[Candidate]:
    """Return the first candidates of the first model that has enough."""
    taken: dict[str, list[Candidate]] = {}
    for one in candidates:
        gang = taken.setdefault(one.node.environment_class, [])
        gang.append(one)
        if len(gang) == size:
            return gang
    return []


def at_random(size: int, candidates: Sequence[Candidate], random: Random) -> list[Candidate]:
    """Return random candidates of a random model that has enough."""
    counts = Counter(one.node.environment_class for one in candidates)
    models = sorted(model for model, count in counts.items() if count >= size)
    if not models:
        return []
    model = random.choices(models, [counts[model] for model in models])[0]
    return random.sample([one for one in candidates if one.node.environment_class == model], size)


POLICIES: dict[str, Policy] = {"": ours, "first_fit_": first_fit, "random_": at_random, "blind_": blind}


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    found = trace.read()
    if found is None:
        if not quick:
            sys.exit(f"No trace in {trace.folder()}: put nodes.csv and tasks.csv there, or set {trace.VARIABLE}.")
        found = trace.synthetic_trace()
        progress(found.note)
    seeds, replays = range(1 if quick else 5), range(1 if quick else 15)  # waits differ much from seed to seed
    most = 500 if quick else None
    whole = _replays(found, replays, SUPPLY, most)
    held_out = {count: _replays(found, replays, count, most, second_half=True) for count in HELD_OUT}
    decisions, cases = (50, 20) if quick else (1_000, 300)
    small = len(found.nodes)
    speeds = {count: [_speed(found, count, seed, decisions) for seed in seeds] for count in (small, LARGE)}
    gaps = [_gaps(seed, cases) for seed in seeds]
    mine = whole[""]
    jobs = f"of {len(mine[0].waits):,} jobs or a few less on {SUPPLY} of the nodes"
    rows = [
        row("decisions_per_second_1213", "1/s", speeds[small], f"{small:,} nodes, all of the trace"),
        row("decisions_per_second_10000", "1/s", speeds[LARGE], "its nodes several times over"),
        row("capacity_violations", "count", [one.capacity_violations for one in mine], jobs),
        row("model_violations", "count", [one.model_violations for one in mine]),
        *_rows("", whole),
        *(found for count, outcomes in held_out.items() for found in _rows(f"held_out_{count}_", outcomes)),
        row("brute_force_gap", "share", list(map(statistics.fmean, gaps)), f"mean of {cases}; gangs of 2 to 4 of 10"),
        row("brute_force_gap_worst", "share", list(map(max, gaps)), "the worst of them"),
    ]
    return [replace(one, note="; ".join(filter(None, [one.note, found.note]))) for one in rows]


def _replays(
    found: Trace, seeds: Sequence[int], count: int, jobs: int | None, *, second_half: bool = False
) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {prefix: [] for prefix in POLICIES}
    for seed in seeds:
        tasks = trace.tasks(found, seed)[:jobs]
        supply = Random(seed).sample(trace.machines(found, seed), count)
        tasks = [task for task in tasks[len(tasks) // 2 if second_half else 0 :] if _fits_somewhere(task, supply)]
        progress(f"seed {seed}: {len(tasks):,} jobs on {count} nodes")
        for prefix, policy in POLICIES.items():
            outcomes[prefix].append(replay(supply, tasks, policy, seed))
    return outcomes


def _rows(stream: str, by_policy: Mapping[str, Sequence[Outcome]]) -> list[Row]:
    means = {policy: [statistics.fmean(one.waits) for one in outcomes] for policy, outcomes in by_policy.items()}
    rows = []
    for policy, outcomes in by_policy.items():
        prefix = stream + policy
        late = [statistics.fmean(wait > PATIENCE_SECONDS for wait in one.waits) for one in outcomes]
        pairs = [theirs - mine for theirs, mine in zip(means[policy], means[""], strict=True)]
        rows += [
            row(f"{prefix}wait_p50_seconds", "s", _percentile(outcomes, 50)),
            row(f"{prefix}wait_p99_seconds", "s", _percentile(outcomes, 99)),
            row(f"{prefix}wait_max_seconds", "s", [max(one.waits) for one in outcomes]),
            row(f"{prefix}wait_mean_seconds", "s", means[policy]),
            row(f"{prefix}wait_mean_of_seeds", "s", [statistics.fmean(means[policy])], "the mean, not the median"),
            row(f"{prefix}waited_an_hour", "share", late),
            row(f"{prefix}utilisation", "share", [one.utilisation for one in outcomes]),
            row(f"{prefix}cost_per_node", "", [statistics.fmean(one.costs) for one in outcomes], "without scarcity"),
            row(f"{prefix}sites_per_node", "", [statistics.fmean(one.sites) for one in outcomes], "of gangs"),
        ]
        if policy:
            longer, shorter = sum(pair > 0 for pair in pairs), sum(pair < 0 for pair in pairs)
            note = f"mean wait less ours, seed by seed: longer in {longer}, shorter in {shorter} of {len(pairs)}"
            rows.append(row(f"{prefix}wait_beyond_ours", "s", pairs, note))
    return rows


def _percentile(outcomes: Sequence[Outcome], share: int) -> list[float]:
    return [statistics.quantiles(one.waits, n=100, method="inclusive")[share - 1] for one in outcomes]


def _fits_somewhere(task: Task, machines: Sequence[Machine]) -> bool:
    models = Counter(machine.environment_class for machine in machines if task.wants.accepts(machine))
    return max(models.values(), default=0) >= task.workers


def replay(machines: Sequence[Machine], tasks: Sequence[Task], policy: Policy, seed: int) -> Outcome:
    """Run the tasks on a virtual clock until all have finished, and check every placement."""
    random, outcome, asked = Random(seed), Outcome(), RecentDemand(machines)
    by_name = {machine.provider: machine for machine in machines}
    free, running, waiting = set(by_name), list[tuple[int, int, list[str]]](), list[Task]()
    suitable = {task.id: [machine for machine in machines if task.wants.accepts(machine)] for task in tasks}
    coming, now = list(reversed(tasks)), 0
    while coming or waiting:
        now = min(coming[-1].start if coming else running[0][0], running[0][0] if running else coming[-1].start)
        while running and running[0][0] <= now:
            free.update(heappop(running)[2])
        while coming and coming[-1].start <= now:
            asked.note(coming[-1])
            waiting.append(coming.pop())
        reserved: set[str] = set()
        scarce = asked.scarcity
        for task in list(waiting):
            if len(free) - len(reserved) < task.workers:
                continue
            usable = [one for one in suitable[task.id] if one.provider in free and one.provider not in reserved]
            seen = [Candidate(one, price=one.price, scarcity=scarce.get(one.kind, 0.0)) for one in usable]
            names = [one.node.provider for one in policy(task.workers, seen, random)]
            if not names:
                if not reserved and now - task.start >= PATIENCE_SECONDS:
                    reserved = {machine.provider for machine in usable}
                continue
            waiting.remove(task)
            gang = [by_name[name] for name in names]
            _check(outcome, task, gang, free)
            free.difference_update(names)
            heappush(running, (now + task.seconds, task.id, names))
            _record(outcome, task, gang, now, tasks[-1].start)
    outcome.utilisation /= (tasks[-1].start - tasks[0].start) * len(machines)
    return outcome


def _check(outcome: Outcome, task: Task, gang: Sequence[Machine], free: set[str]) -> None:
    names = {machine.provider for machine in gang}
    small = any(machine.cpu < task.wants.cpu or machine.memory < task.wants.memory for machine in gang)
    outcome.capacity_violations += len(names) != task.workers or not names <= free or small
    models = {machine.environment_class for machine in gang}
    wanted = task.wants.environment_classes
    outcome.model_violations += len(models) != 1 or bool(wanted and not models <= wanted)


def _record(outcome: Outcome, task: Task, gang: Sequence[Machine], now: int, last_arrival: int) -> None:
    """Record a placement; its cost has only the job's own four terms, so that policies compare."""
    outcome.waits.append(now - task.start)
    outcome.utilisation += max(0, min(now + task.seconds, last_arrival) - now) * task.workers
    outcome.costs.append(gang_cost([Candidate(one, price=one.price) for one in gang]) / task.workers)
    if task.workers > 1:
        outcome.sites.append(len({one.site for one in gang}) / task.workers)


def _speed(found: Trace, count: int, seed: int, decisions: int) -> float:
    """Return the decisions per second among ``count`` nodes."""
    # Timed: scarcity, the choice by requirements and objective, taking the nodes, and returning those of the gang
    # before last. Not timed: sorting all nodes once, which a market does before its first decision.
    machines = trace.machines(found, seed)
    copies = range(count // len(machines) + 1)
    machines = [replace(one, provider=f"{one.provider}-{copy}") for copy in copies for one in machines][:count]
    tasks = Random(seed).choices(trace.tasks(found, seed), k=decisions)
    progress(f"{decisions} decisions among {count:,} nodes")
    asked, pools = RecentDemand(machines), dict[str, Pool]()
    for one in machines:
        pools.setdefault(one.environment_class, Pool()).add(Candidate(one, price=one.price))
    out: deque[list[Candidate]] = deque()
    started = time.perf_counter()
    for task in tasks:
        asked.note(task)
        gangs = [pool.choose(task.workers, task.wants, scarcity=asked.scarcity) for pool in pools.values()]
        gang = min((gang for gang in gangs if len(gang) == task.workers), key=gang_cost, default=[])
        out.append([pools[one.node.environment_class].remove(one.node.provider) for one in gang])
        if len(out) > 2:
            for freed in out.popleft():
                pools[freed.node.environment_class].add(freed)
    return decisions / (time.perf_counter() - started)


def _gaps(seed: int, cases: int) -> list[float]:
    """Return the mean extra cost of the chosen gang over the best, in random small markets."""
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
