"""Advice on a job before its payer signs it. Pure; advice refuses no job."""

import math

from pydantic import BaseModel, Field

from training_gym.exchange.round_time import REFERENCE_LINK, RoundTime, round_time
from training_gym.spec.config import CHUNK, MAX_BATCH_SIZE, MAX_TOKENS_PER_STEP, TrainingSpec
from training_gym.spec.costs import gpus_in_use

SLOWNESS = 3
"""Usual factor below the reference speed, which is that of well tuned training."""
POOR_SHARE = 0.5
"""Share of ideal throughput below which the quote advises changes."""

SMALL_MODEL = 10_000_000
"""Parameters below which few nodes and large batches decide the loss (decision 16)."""
SMALL_MODEL_NODES, SMALL_MODEL_TOKENS = 4, 2_048
"""Most nodes, and least tokens of a node's step, that advice on a small model leaves alone."""

MANY_EPOCHS = 16
"""Epochs after which repeated data bring little (Muennighoff et al., 2023)."""


class ExpectedThroughput(BaseModel):
    """Estimated throughput over a link (``training_gym.exchange.round_time``).

    It assumes identical nodes at the tier's reference speed, all GPUs together, and aggregation on one core. Slower
    nodes spend a larger share of a longer round in compute.
    """

    share_of_ideal: float = Field(description="Share of the throughput of the same nodes without transfers and waits.")
    round_seconds: float = Field(description="Seconds from one checkpoint to the next.")
    compute_seconds: float = Field(description="Compute of a round at the tier's reference speed.")
    closing_seconds: float = Field(description="Aggregation and outer step of a round on one core.")
    up_bytes: int = Field(description="Maximum upload of a node per round at the link's top_k.")
    down_bytes: int = Field(description="Maximum download of a node per round.")
    down_mbps: float = Field(description="Download rate of each node's link, 10**6 bits per second.")
    up_mbps: float
    round_trip_seconds: float
    nodes: int

    @property
    def is_poor(self) -> bool:
        return self.share_of_ideal < POOR_SHARE


def expected_throughput(spec: TrainingSpec, nodes: int, compute_seconds: float) -> ExpectedThroughput:
    """Estimate nodes whose units compute for ``compute_seconds``, over the reference link."""
    link = REFERENCE_LINK
    found: RoundTime = round_time(spec, nodes, compute_seconds, link)
    return ExpectedThroughput(
        share_of_ideal=round(found.share, 4),
        round_seconds=round(found.seconds, 3),
        compute_seconds=round(found.compute, 3),
        closing_seconds=round(found.closing, 3),
        up_bytes=found.up_bytes,
        down_bytes=found.down_bytes,
        down_mbps=link.down_mbps,
        up_mbps=link.up_mbps,
        round_trip_seconds=link.round_trip_seconds,
        nodes=nodes,
    )


def rate_schedule(spec: TrainingSpec) -> str:
    """Return the course of the learning rates in words (``training_gym.units.unit.rate_share``)."""
    training = spec.training
    steps, share, first = training.rounds * training.inner_steps, training.final_rate_share, spec.start_rate_share
    decay = f"linear decay to {share:.0%} of the peak rates at step {steps}"
    if share == first:
        decay = "constant" if share == 1 else f"constant at {share:.0%} of the peak rates"
    elif first != 1:
        decay = f"linear change from {first:.0%} to {share:.0%} of the peak rates at step {steps}"
    start = ""
    if spec.start_model is not None:
        start = "; the start model brings its parameters only: the schedule begins anew"
    if spec.start_checkpoint is not None:
        used = {"outer momentum": training.outer_momentum > 0, "residual": training.down_top_k > 0}
        kept = ["parameters", *(name for name, is_used in used.items() if is_used)]
        start = (
            f"; continues with the checkpoint's {', '.join(kept)}. The data go on with round {spec.start_round + 1:,} "
            "of this size. With another seed, sequence_length, objective or start_model than its job's, they come in "
            "another order, and some are read again. Replicas begin with fresh optimiser moments and error feedback"
        )
    return f"warm-up over {training.warmup_steps} steps, then {decay}{start}"


class Advice(BaseModel):
    """One piece of advice: a stable code, a finding and a remedy."""

    code: str
    detail: str
    remedy: str
    field: str = Field(description="Setting to change first.")


def advice_on(
    spec: TrainingSpec,
    expected: ExpectedThroughput,
    longest_round_seconds: float = math.inf,
    gpus: int = 1,
    epochs: float = 1,
) -> list[Advice]:
    """Return advice on a job.

    Args:
        longest_round_seconds: a longer round fails its job.
        gpus: of a node of the tier.
        epochs: how often the job reads its training split.
    """
    points = (
        _idle_gpus(spec, gpus),
        _small_batches(spec, expected.nodes),
        _few_rounds(spec),
        _many_epochs(epochs),
        _low_throughput(spec, expected),
        _long_units(spec, expected, longest_round_seconds),
    )
    return [found for found in points if found is not None]


def _idle_gpus(spec: TrainingSpec, gpus: int) -> Advice | None:
    used, batch = gpus_in_use(spec, gpus), spec.training.batch_size
    if used == gpus:
        return None
    divisible = "" if batch % gpus == 0 else f"Make batch_size, now {batch}, a multiple of {gpus}. "
    return Advice(
        code="idle_gpus",
        detail=f"A unit uses {used} of a node's {gpus} GPUs. The price counts all of them.",
        remedy=f"{divisible}Set gradient_shards to {gpus}: a unit then takes and costs 1/{gpus // used}.",
        field="training_config.gradient_shards",
    )


def _small_batches(spec: TrainingSpec, nodes: int) -> Advice | None:
    """Advise fewer nodes with larger batches, which small models need (decision 16)."""
    batch, length = spec.training.batch_size, spec.model.sequence_length
    enough = max(1, min(nodes, SMALL_MODEL_NODES, nodes * batch * length // SMALL_MODEL_TOKENS))
    shards = spec.training.gradient_shards  # a batch is a multiple of them
    largest = min(MAX_BATCH_SIZE, MAX_TOKENS_PER_STEP // length) // shards * shards
    fewer = max(enough, math.ceil(nodes * batch / largest))
    if spec.num_parameters() >= SMALL_MODEL or fewer == nodes:
        return None
    larger = math.ceil(nodes * batch / fewer / shards) * shards
    return Advice(
        code="small_batches",
        detail=f"{nodes} nodes train this small model on {batch * length:,} tokens a step each. Between two "
        "aggregations the noise of small batches costs loss, the more so the more nodes there are.",
        remedy=f"Take {fewer} {'nodes' if fewer > 1 else 'node'} with a batch_size of {larger}: "
        f"as many tokens for about the same price, in {nodes / fewer:.2g} times the time.",
        field="nodes",
    )


def max_inner_steps(spec: TrainingSpec, compute_seconds: float, allowed_seconds: float) -> int:
    """Return the most inner steps that fit the time, in whole segments, at least one."""
    training = spec.training
    segments = int(allowed_seconds / compute_seconds * training.inner_steps) // training.segment_steps
    return max(1, segments) * training.segment_steps


def _long_units(spec: TrainingSpec, expected: ExpectedThroughput, longest: float) -> Advice | None:
    seconds = expected.compute_seconds
    if seconds * SLOWNESS <= longest:
        return None
    fewer = max_inner_steps(spec, seconds, longest / SLOWNESS)
    return Advice(
        code="long_units",
        detail=f"One unit takes {seconds:.4g} s at the tier's reference speed, without transfers. A round longer than "
        f"{longest:.4g} s fails its job. Unverified units are refunded.",
        remedy=f"Take at most {fewer} inner_steps per round, so that a node at a third of that speed is in time.",
        field="training_config.inner_steps",
    )


def _few_rounds(spec: TrainingSpec) -> Advice | None:
    """Advise more rounds for sparse updates: a round changes ``down_top_k`` entries per chunk."""
    training = spec.training
    most = training.rounds * training.down_top_k
    if not 0 < most < CHUNK:
        return None
    return Advice(
        code="few_rounds",
        detail=f"{training.rounds} rounds that move {training.down_top_k} of {CHUNK} parameters each change at most "
        f"{most / CHUNK:.1%} of the model.",
        remedy=f"Take at least {-(-CHUNK // training.down_top_k)} rounds, a larger top_k and down_top_k, or the method "
        "default, which sends every entry.",
        field="training_config.rounds",
    )


def _many_epochs(epochs: float) -> Advice | None:
    if epochs <= MANY_EPOCHS:
        return None
    return Advice(
        code="many_epochs",
        detail=f"The job reads its training split {epochs:,.0f} times. After {MANY_EPOCHS} times, the loss on other "
        "text hardly falls, or rises.",
        remedy="Take fewer rounds or a larger dataset.",
        field="training_config.rounds",
    )


def _low_throughput(spec: TrainingSpec, expected: ExpectedThroughput) -> Advice | None:
    if not expected.is_poor:
        return None
    delay = "" if spec.training.round_delay else "round_delay 1, "
    return Advice(
        code="low_throughput",
        detail=f"Over {expected.down_mbps:g}/{expected.up_mbps:g} Mb/s a round is expected to take "
        f"{expected.round_seconds:.3g} s. Its nodes train {expected.compute_seconds:.3g} s of it: "
        f"{expected.share_of_ideal:.0%} of the throughput without transfers and waits.",
        remedy=f"Take {delay}a larger batch_size, more inner_steps per round, or a smaller top_k and down_top_k. The "
        "user guide gives their cost in loss.",
        field="training_config",
    )
