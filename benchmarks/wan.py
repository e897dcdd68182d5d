"""Simulation of outer rounds over slow links: efficiency, and the simulator's error.

``python -m benchmarks.wan --json``. Efficiency is relative to the full compute of the slots' devices in the same time.
Every row simulates the current product (``benchmarks.simulator.rounds``).

- ``efficiency_1b``: the settings of docs/planning.md for such links and model sizes (``method: slow_links``).
  These are rounds of 30 steps, 64 of 4,096 entries at 2 bits both ways, and ``round_delay`` 1. A checkpoint is kept
  every 24 rounds.
- ``_unset``: a job without settings. A model of this size takes the same settings then, and keeps every checkpoint.
- ``_plain_defaults``: a job with ``method: default``.
- ``quote_error``: difference of a quote's estimate (``training_gym.exchange.round_time``) from these rows.
- ``quote_error_no_churn``: the same for scenarios without departures, which the estimate assumes.

Payloads have the entries that the market assigns to such a link (``training_gym.compress.link_adaptation``). Sizes and
the market's times are measured on real payloads and extrapolated by parameter (``benchmarks.simulator.measured``). The
loss at sparser settings is not measured here.

Assumed, and not measured:

- A node is one H100 at 50 TFLOP/s: fp32 without tensor cores (at most 67 TFLOP/s), as in our execution profile.
- A node does 6 FLOP per parameter and token, and 131,072 tokens (64 sequences of 2,048) per inner step.
- A gang has one environment class, so its devices are equal; a unit's time varies by 1 % (standard deviation).
- A link has 100/20 Mb/s down/up and 80 ms. 10 % of the nodes leave per hour without notice, and as many arrive.
- The market's storage has 10 Gb/s each way, per thousand nodes. Its worker aggregates on one core, and validates on
  others.
- Two of a hundred segments are sampled, three nodes pin each checkpoint, the training split is 2 GB.
- The operator has raised ``ZOO_ROUND_DEADLINE_SECONDS`` and ``ZOO_INCLUSION_DEADLINE_SECONDS`` to a day, and the
  largest upload to 64 MB.

A job has at most 256 nodes. The rows beyond that serve planning.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from benchmarks.report import Row, progress, row, run
from benchmarks.simulator.measured import Costs, Samples, Settings
from benchmarks.simulator.real_run import compare
from benchmarks.simulator.rounds import simulate
from benchmarks.simulator.scenario import Market, Nodes, Outcome, Scenario, Work
from market.orders.schemas import MAX_NODES
from training_gym.compress.link_adaptation import choose_top_k
from training_gym.exchange.round_time import MBIT, Link, round_time
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.defaults import settings_by_size
from training_gym.spec.methods import METHODS

BILLION = read_model({"hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16, "sequence_length": 2048})
"""1,007,765,504 parameters."""
FIVE_MILLION = read_model(
    {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "sequence_length": 2048}
)
"""4,852,992 parameters."""
TOKENS_PER_STEP = 64 * 2048
DATASET_BYTES = 2e9
DAY = 86_400.0
NODES_PER_STORAGE = 1000
"""Nodes per 10 Gb/s of the market's storage, which is assumed to grow with them.

Downloads by newcomers and spares (6 GB each) would otherwise saturate it.
"""
H100_FP32, A100_FP32, H100_BF16 = 50e12, 15e12, 400e12
NODES = 64
PLAIN = TrainingConfig()
SLOW_LINKS = TrainingConfig(**METHODS["slow_links"])
SPARSE, FULLER = {"top_k": 256, "down_top_k": 256}, {"top_k": 960, "down_top_k": 960}


def unset(model: ModelConfig) -> TrainingConfig:
    """Return the settings of a job that sets none."""
    return TrainingConfig(**settings_by_size(model, {}, NODES))


@dataclass(frozen=True, slots=True)
class Plan:
    """One row's job.

    Attributes:
        training: its settings, except ``rounds``.
        storage_gbps: bandwidth of the market's storage, each way.
        tree: number of processes that aggregate in parts; 0 is one process without parts.
        unmeasured: first rounds that the figures exclude.
        patient: True if the operator has raised the two deadlines named above.
    """

    training: TrainingConfig = SLOW_LINKS
    model: ModelConfig = BILLION
    flops: float = H100_FP32
    nodes: int = NODES
    link: Link = field(default_factory=Link)
    churn: float = 0.1
    jitter: float = 0.01
    straggler_share: float = 0.0
    pin_interval: int = 1
    storage_gbps: float = 10.0
    tree: int = 0
    patient: bool = True
    rounds: int = 28
    unmeasured: int = 4

    def with_settings(self, **settings: Any) -> "Plan":
        """Return the plan with other training settings."""
        return replace(self, training=replace(self.training, **settings))

    @property
    def spec(self) -> TrainingSpec:
        return TrainingSpec(self.model, "unused", self.training)

    @property
    def sent(self) -> Settings:
        """Settings that costs depend on, with the ``top_k`` assigned to nodes of such a link."""
        rate = round(self.link.up_mbps * MBIT)
        return Settings.of(replace(self.training, top_k=choose_top_k(self.spec, rate, self.compute_seconds)))

    @property
    def compute_seconds(self) -> float:
        """Seconds of a unit's inner steps."""
        return self.training.inner_steps * TOKENS_PER_STEP * 6 * self.model.num_parameters() / self.flops

    def scenario(self, costs: Costs, seed: int) -> Scenario:
        """Return the simulator's input; ``costs`` are those of this plan's payloads (``sent``)."""
        size = self.model.num_parameters()
        vector, training = 4.0 * size, self.training
        work = Work(
            compute=self.compute_seconds,
            encode=costs.encode * size,
            payload=costs.payload * size,
            update=costs.update * size,
            model=vector,
            slot_state=3 * vector,  # error feedback, and AdamW's moments
            dataset=DATASET_BYTES,
            state=3 * vector,  # AdamW's moments too
            segments=self.spec.segments,
            outer_state=vector * (1 + bool(training.down_top_k)),
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
        return Scenario(work, nodes, market, self.rounds, self.unmeasured, seed=seed, round_delay=training.round_delay)


RECOMMENDED = Plan(pin_interval=24)
"""The plan that docs/planning.md recommends for a billion parameters over such links."""
HEADLINES = ("efficiency_1b", "efficiency_1b_unset", "efficiency_1b_plain_defaults")
SEEDS, HEADLINE_SEEDS = 3, 15
"""Departures change a run's share by a point (standard deviation), so three seeds leave the median too uncertain."""


def plans(quick: bool) -> Iterator[tuple[str, str, Plan]]:
    """Yield rows: name, note and plan."""
    best = replace(RECOMMENDED, nodes=8, rounds=6, unmeasured=2) if quick else RECOMMENDED
    plain = replace(best, training=PLAIN, pin_interval=1)
    small = replace(plain, model=FIVE_MILLION)
    yield "efficiency_1b", "as recommended: H 30, k 64, 2 bits, round_delay 1", best
    yield "efficiency_1b_no_delay", "the same with round_delay 0", best.with_settings(round_delay=0)
    yield "efficiency_1b_h16", "H 16", best.with_settings(inner_steps=16, segment_steps=4)
    yield "efficiency_1b_h48", "H 48", best.with_settings(inner_steps=48)
    yield "efficiency_1b_h96", "H 96", best.with_settings(inner_steps=96)
    yield "efficiency_1b_k256", "k 256", best.with_settings(**SPARSE)
    yield "efficiency_1b_h48_k256", "H 48, k 256", best.with_settings(**SPARSE, inner_steps=48)
    fuller = replace(best.with_settings(**FULLER, inner_steps=48), tree=4)
    yield "efficiency_1b_h48_k960", "H 48, k 960, joined by four processes", fuller
    yield "efficiency_1b_h96_no_delay", "H 96, round_delay 0", best.with_settings(round_delay=0, inner_steps=96)
    nothing = unset(BILLION)
    setting_note = f"nothing set: H {nothing.inner_steps}, k {nothing.top_k}, round_delay {nothing.round_delay}"
    yield "efficiency_1b_unset", f"{setting_note}; kept every round", replace(best, training=nothing, pin_interval=1)
    installed = replace(best, training=nothing, pin_interval=1, patient=False)
    yield "efficiency_1b_as_installed", "nothing set, the market's deadlines too", installed
    dense = f"method default: H {PLAIN.inner_steps}, k {PLAIN.top_k}, {PLAIN.value_bits} bits, round_delay 0"
    yield "efficiency_1b_plain_defaults", dense, plain
    delayed = replace(plain, pin_interval=24).with_settings(round_delay=1)
    yield "efficiency_1b_defaults_delay", "method default with round_delay 1", delayed
    yield "efficiency_5m", "nothing set, 5 million parameters", small
    yield "efficiency_5m_delay", "the same with round_delay 1", small.with_settings(round_delay=1)

    yield "efficiency_1b_no_churn", "", replace(best, churn=0.0)
    yield "efficiency_1b_churn_50", "half of the nodes leave per hour", replace(best, churn=0.5)
    yield "efficiency_1b_stragglers", "every tenth node 4 times slower", replace(best, straggler_share=0.1)
    for name, link in (("50_10", Link(50.0, 10.0, 0.08)), ("25_5_300ms", Link(25.0, 5.0, 0.3))):
        yield f"efficiency_1b_link_{name}", "Mb/s down, up", replace(best, link=link)
    slow, fast = best.with_settings(inner_steps=8, segment_steps=2), best.with_settings(inner_steps=192)
    yield "efficiency_1b_a100_fp32", "a node of 15 TFLOP/s, H 8", replace(slow, flops=A100_FP32)
    yield "efficiency_1b_h100_bf16", "a node of 400 TFLOP/s, H 192", replace(fast, flops=H100_BF16)
    for count in (10, 100) if quick else (10, 100, 1_000, 10_000):
        grown = replace(best, nodes=count, tree=count // 16)
        note = f"{grown.tree} joining processes" if grown.tree else ""
        if count > NODES_PER_STORAGE:
            storage = best.storage_gbps * count / NODES_PER_STORAGE
            grown = replace(grown, storage_gbps=storage, rounds=8)
            note += f", storage of {storage:g} Gb/s, {grown.rounds - grown.unmeasured} rounds"
        yield f"efficiency_1b_nodes_{count}", note, grown


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    samples, known = Samples(quick), dict[Settings, Costs]()
    quoted, quoted_without_churn = dict[str, float](), dict[str, float]()
    listed = list(plans(quick))
    for number, (name, note, plan) in enumerate(listed, 1):
        if plan.sent not in known:
            progress(f"encoding payloads: {plan.sent}")
            known[plan.sent] = samples.costs(plan.sent)
        costs = known[plan.sent]
        progress(f"{name} ({number} of {len(listed)})")
        started = time.process_time()
        seeds = 1 if quick else HEADLINE_SEEDS if name in HEADLINES else SEEDS
        outcomes = [simulate(plan.scenario(costs, seed)) for seed in range(seeds)]
        spent = time.process_time() - started
        rows.append(row(name, "share", [outcome.efficiency for outcome in outcomes], note))
        if name in HEADLINES:
            rows += _parts(name, plan, costs, outcomes)
        if "_nodes_" in name:
            events = sum(outcome.events for outcome in outcomes)
            rows.append(row(f"events_per_second_{plan.nodes}", "1/s", [events / spent], f"{events:,} events"))
        if _is_quotable(plan):
            share = round_time(plan.spec, plan.nodes, plan.compute_seconds, plan.link).share
            quoted[name] = share - statistics.median(outcome.efficiency for outcome in outcomes)
            quoted_without_churn[name] = share - simulate(replace(plan, churn=0.0).scenario(costs, 0)).efficiency
    rows.append(_quote_error("quote_error", quoted))
    rows.append(_quote_error("quote_error_no_churn", quoted_without_churn))
    for settings, costs in known.items():
        if settings == Settings.of(PLAIN) or settings.down_top_k == settings.top_k:
            rows += _sizes(settings, costs)
    return rows + compare(quick)


def _is_quotable(plan: Plan) -> bool:
    """Return whether the market could quote the plan, under the estimate's assumptions."""
    return plan.nodes <= MAX_NODES and plan.patient and not plan.straggler_share


def _quote_error(name: str, errors: dict[str, float]) -> Row:
    worst = max(errors, key=lambda scenario: abs(errors[scenario]))
    return row(name, "share", list(errors.values()), f"of {len(errors)} scenarios; farthest off in {worst}")


def _parts(name: str, plan: Plan, costs: Costs, outcomes: list[Outcome]) -> list[Row]:
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
    suffix = f"k{settings.top_k}_b{settings.value_bits}"
    rows = [row(f"up_bits_{suffix}_down_{settings.down_top_k}", "bits/parameter", [8 * costs.payload], "a payload")]
    if settings.down_top_k:
        rows.append(row(f"down_bits_{suffix}", "bits/parameter", [8 * costs.update], "an update"))
    return rows


if __name__ == "__main__":
    run("wan", measure)
