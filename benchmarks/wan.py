"""Outer rounds over slow links, simulated: what share of the ideal throughput is left, and how true the simulator is.

``python -m benchmarks.wan --json``. The ideal is what the slots' devices compute in the same time without ever waiting.
Every row is the product as it is (``benchmarks.simulator.rounds`` says what is modelled). ``efficiency_1b`` is taken at
the settings that docs/planning.md recommends for such links and so many parameters (``method: slow_links``): rounds of
24 steps, 64 of 4,096 entries at 2 bits both ways, ``round_delay`` 1; and a checkpoint kept every 24 rounds.
``_plain_defaults`` has none of it. Sizes and the market's times are measured on real payloads and extrapolated by
parameter (``benchmarks.simulator.measured``). Whether a model learns as well at sparser settings is not asked here.
Assumed, and not measured:

- a node is one H100 at 50 TFLOP/s: fp32 without tensor cores (67 TFLOP/s at the most), as our execution profile has it;
  it does 6 FLOP per parameter and token, and 131,072 tokens (64 sequences of 2,048) per inner step;
- a gang is of one environment class, so its devices are alike; each unit's time varies by 1 % (standard deviation);
- 100/20 Mb/s down/up and 80 ms per node, 10 % of the nodes leave per hour without a word and as many come;
- the market's storage has 10 Gb/s each way, and beyond a thousand nodes that for each thousand; its worker joins
  rounds on one core, and validates models on others;
- two of a hundred segments are sampled, three nodes pin each checkpoint, the training split is 2 GB;
- the operator has raised what waits for rounds of minutes (``ZOO_ROUND_DEADLINE_SECONDS`` and
  ``ZOO_INCLUSION_SECONDS`` to a day), the largest model (500 million parameters), the largest upload (64 MB) and,
  beyond 64 nodes, the largest job. With the settings as they are the market would refuse it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from benchmarks.report import Row, progress, row, run
from benchmarks.simulator.measured import Costs, Samples, Settings
from benchmarks.simulator.real_run import compare
from benchmarks.simulator.rounds import Outcome, simulate
from benchmarks.simulator.scenario import Link, Market, Nodes, Scenario, Work
from market.jobs.schemas import MAX_NODES
from training_gym.config import METHODS, TrainingConfig

BILLION = 1_000_000_000
TOKENS_PER_STEP = 64 * 2048
DATASET_BYTES = 2e9
DAY = 86_400.0
NODES_PER_STORAGE = 1000
"""So many nodes fetch and send over 10 Gb/s; for more of them the market's storage is taken to grow with them. What
newcomers and spares fetch (6 GB each) would otherwise fill it."""
H100_FP32, A100_FP32, H100_BF16 = 50e12, 15e12, 400e12
DEFAULTS = TrainingConfig()
FULLER = Settings(960, 2, 960, 2)
SPARSE = Settings(256, 2, 256, 2)
SLOW_LINKS = TrainingConfig(**METHODS["slow_links"])


@dataclass(frozen=True, slots=True)
class Plan:
    """One row's job.

    Attributes:
        delay: the job's ``round_delay``.
        storage_gbps: of the market's storage, each way.
        tree: so many processes join the round in parts; 0 is one, in one go.
        unmeasured: rounds in the beginning that the figures leave out.
        patient: the operator has raised the two settings named above.
    """

    settings: Settings = field(default_factory=lambda: Settings.of(DEFAULTS))
    steps: int = DEFAULTS.inner_steps
    parameters: int = BILLION
    flops: float = H100_FP32
    nodes: int = MAX_NODES
    link: Link = field(default_factory=Link)
    churn: float = 0.1
    jitter: float = 0.01
    straggler_share: float = 0.0
    pin_interval: int = 1
    storage_gbps: float = 10.0
    tree: int = 0
    delay: int = 0
    patient: bool = True
    rounds: int = 28
    unmeasured: int = 4

    @property
    def compute_seconds(self) -> float:
        """Of a unit's inner steps."""
        return self.steps * TOKENS_PER_STEP * 6 * self.parameters / self.flops

    def scenario(self, costs: Costs, seed: int) -> Scenario:
        """What the simulator takes, with this plan's settings costing ``costs``."""
        size, vector = self.parameters, 4.0 * self.parameters
        settings = self.settings
        work = Work(
            compute=self.compute_seconds,
            encode=costs.encode * size,
            payload=costs.payload * size,
            update=costs.update * size,
            model=vector,
            slot_state=3 * vector,  # error feedback, and AdamW's moments
            dataset=DATASET_BYTES,
            state=3 * vector,  # AdamW's moments too
            segments=DEFAULTS.inner_steps // DEFAULTS.segment_steps,
            outer_state=vector * (1 + bool(settings.down_top_k)),
        )
        market = Market(
            up_mbps=1_000 * self.storage_gbps,
            down_mbps=1_000 * self.storage_gbps,
            admit=costs.admit * size,
            join=costs.join * size,
            close=costs.close * size,
            leaf=16 if self.tree else 0,
            workers=max(1, self.tree),
            merge=vector * 2 / 1e9,  # int64 sums, read and added at 1 GB/s
            sampling=0.02,
            pins=3,
            pin_interval=self.pin_interval,
        )
        if self.patient:
            market = replace(market, round_deadline_seconds=DAY, upload_seconds=DAY / 2)
        nodes = Nodes(
            self.nodes,
            spares=max(1, self.nodes // 8),
            links={self.link: 1.0},
            jitter=self.jitter,
            straggler_share=self.straggler_share,
            leave_per_hour=self.churn,
        )
        return Scenario(work, nodes, market, self.rounds, unmeasured=self.unmeasured, seed=seed, round_delay=self.delay)


RECOMMENDED = Plan(Settings.of(SLOW_LINKS), SLOW_LINKS.inner_steps, pin_interval=24, delay=SLOW_LINKS.round_delay)
"""What docs/planning.md recommends for a billion parameters over such links."""


def plans(quick: bool) -> Iterator[tuple[str, str, Plan]]:
    """Rows: name, note and plan."""
    base = Plan(nodes=8, rounds=6, unmeasured=2) if quick else Plan()
    best = replace(RECOMMENDED, nodes=base.nodes, rounds=base.rounds, unmeasured=base.unmeasured)
    sparse = replace(best, settings=SPARSE)
    yield "efficiency_1b", "as recommended: H 24, k 64, 2 bits, round_delay 1", best
    yield "efficiency_1b_no_delay", "the same with round_delay 0", replace(best, delay=0)
    yield "efficiency_1b_h16", "H 16", replace(best, steps=16)
    yield "efficiency_1b_h48", "H 48", replace(best, steps=48)
    yield "efficiency_1b_h96", "H 96", replace(best, steps=96)
    yield "efficiency_1b_h24_k256", "k 256", sparse
    yield "efficiency_1b_h48_k256", "H 48, k 256", replace(sparse, steps=48)
    yield (
        "efficiency_1b_h48_k960",
        "H 48, k 960, joined by four processes",
        replace(best, settings=FULLER, steps=48, tree=4),
    )
    yield "efficiency_1b_h96_no_delay", "H 96, round_delay 0", replace(best, delay=0, steps=96)
    plain = f"nothing set: H {base.steps}, k {DEFAULTS.top_k}, {DEFAULTS.value_bits} bits, round_delay 0"
    yield "efficiency_1b_plain_defaults", plain, base
    yield "efficiency_1b_defaults_delay", "the defaults with round_delay 1", replace(base, delay=1, pin_interval=24)
    yield "efficiency_1b_as_installed", "nothing set, the market's deadlines too", replace(base, patient=False)
    yield "efficiency_5m", "nothing set, 5 million parameters", replace(base, parameters=5 * 10**6)
    yield "efficiency_5m_delay", "the defaults with round_delay 1", replace(base, parameters=5 * 10**6, delay=1)

    yield "efficiency_1b_no_churn", "", replace(best, churn=0.0)
    yield "efficiency_1b_churn_50", "half of the nodes leave per hour", replace(best, churn=0.5)
    yield "efficiency_1b_stragglers", "every tenth node 4 times slower", replace(best, straggler_share=0.1)
    for name, link in (("50_10", Link(50.0, 10.0, 0.08)), ("25_5_300ms", Link(25.0, 5.0, 0.3))):
        yield f"efficiency_1b_link_{name}", "Mb/s down, up", replace(best, link=link)
    yield "efficiency_1b_a100_fp32", "a node of 15 TFLOP/s, H 8", replace(best, flops=A100_FP32, steps=8)
    yield "efficiency_1b_h100_bf16", "a node of 400 TFLOP/s, H 192", replace(best, flops=H100_BF16, steps=192)
    for count in (10, 100) if quick else (10, 100, 1_000, 10_000):
        grown = replace(best, nodes=count, tree=count // 16)
        note = f"{grown.tree} joining processes" if grown.tree else ""
        if count > NODES_PER_STORAGE:
            storage = best.storage_gbps * count / NODES_PER_STORAGE
            grown = replace(grown, storage_gbps=storage, rounds=8)
            note += f", storage of {storage:g} Gb/s, {grown.rounds - grown.unmeasured} rounds"
        yield f"efficiency_1b_nodes_{count}", note, grown


def measure(quick: bool) -> list[Row]:
    """All rows."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    samples, known = Samples(quick), dict[Settings, Costs]()
    for name, note, plan in plans(quick):
        if plan.settings not in known:
            progress(f"encoding payloads: {plan.settings}")
            known[plan.settings] = samples.costs(plan.settings)
        progress(name)
        started = time.process_time()
        outcomes = [simulate(plan.scenario(known[plan.settings], seed)) for seed in range(1 if quick else 3)]
        spent = time.process_time() - started
        rows.append(row(name, "share", [outcome.efficiency for outcome in outcomes], note))
        if name in ("efficiency_1b", "efficiency_1b_plain_defaults"):
            rows += _parts(name, plan, known[plan.settings], outcomes)
        if "_nodes_" in name:
            events = sum(outcome.events for outcome in outcomes)
            rows.append(row(f"events_per_second_{plan.nodes}", "1/s", [events / spent], f"{events:,} events"))
    for settings, costs in known.items():
        if settings == Settings.of(DEFAULTS) or settings.down_top_k == settings.top_k:
            rows += _sizes(settings, costs)
    return rows + compare(quick)


def _parts(name: str, plan: Plan, costs: Costs, outcomes: list[Outcome]) -> list[Row]:
    """What a round takes, and of it the training and the market's closing."""
    scenario = plan.scenario(costs, 0)
    rounds = [round_ for outcome in outcomes for round_ in outcome.rounds]
    closing = [round_.joined_at - round_.closed_at for round_ in rounds]
    part = name.removeprefix("efficiency_")
    return [
        row(f"round_seconds_{part}", "s", [round_.seconds for round_ in rounds] or [0.0]),
        row(f"compute_seconds_{part}", "s", [scenario.work.compute]),
        row(f"closing_seconds_{part}", "s", closing or [0.0], "joining, outer step, storing"),
        row(f"included_{part}", "units", [round_.included for round_ in rounds] or [0], f"of {plan.nodes}"),
    ]


def _sizes(settings: Settings, costs: Costs) -> list[Row]:
    suffix = f"k{settings.top_k}_b{settings.bits}"
    rows = [row(f"up_bits_{suffix}_down_{settings.down_top_k}", "bits/parameter", [8 * costs.payload], "a payload")]
    if settings.down_top_k:
        rows.append(row(f"down_bits_{suffix}", "bits/parameter", [8 * costs.update], "an update"))
    return rows


if __name__ == "__main__":
    run("wan", measure)
