"""What the payer of a job may want to change before signing it. Pure; nothing here refuses a job."""

import math

from pydantic import BaseModel, Field

from training_gym.exchange.round_time import REFERENCE_LINK, RoundTime, round_time
from training_gym.spec.config import CHUNK, TrainingSpec

SLOWNESS = 3
"""Nodes prove less than the reference speed, which is that of well tuned training; so many times slower is usual."""
POOR_SHARE = 0.5
"""Whoever waits more than they train should know it before they pay."""


class ExpectedThroughput(BaseModel):
    """How much of the nodes' time a job's rounds leave for training, over the link that is named here.

    An estimate in closed form (``training_gym.exchange.round_time``), of nodes that are alike and stay. It takes
    their devices
    to have the tier's reference speed, all GPUs together, as ``expected_seconds`` does: slower devices compute for
    longer, which leaves a larger share and takes more time. The market is taken to join rounds on one core.
    """

    share_of_ideal: float = Field(
        description="Of the throughput of the same nodes if they neither moved nor waited for anything."
    )
    round_seconds: float = Field(description="From one checkpoint to the next.")
    compute_seconds: float = Field(description="Of a round, at the tier's reference speed.")
    closing_seconds: float = Field(description="Of a round: joining its payloads and the outer step, on one core.")
    up_bytes: int = Field(description="What a node sends each round, at most, at the top_k it is told over this link.")
    down_bytes: int = Field(description="What a node fetches each round, at most.")
    down_mbps: float = Field(description="Of each node's link, 10**6 bits per second.")
    up_mbps: float
    round_trip_seconds: float
    nodes: int

    @property
    def is_poor(self) -> bool:
        return self.share_of_ideal < POOR_SHARE


def expected_throughput(spec: TrainingSpec, nodes: int, compute_seconds: float) -> ExpectedThroughput:
    """Of ``nodes`` nodes whose units take ``compute_seconds`` of inner steps, over the reference link."""
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


class Advice(BaseModel):
    """One point: a stable code, what is found, and what would help."""

    code: str
    detail: str
    remedy: str
    field: str = Field(description="The setting to look at first.")


def advice_on(
    spec: TrainingSpec, expected: ExpectedThroughput, longest_round_seconds: float = math.inf
) -> list[Advice]:
    """Everything about a job that its payer may not expect.

    Args:
        longest_round_seconds: the market fails a job whose round takes longer.
    """
    points = _few_rounds(spec), _low_throughput(spec, expected), _long_units(spec, expected, longest_round_seconds)
    return [found for found in points if found is not None]


def max_inner_steps(spec: TrainingSpec, compute_seconds: float, allowed_seconds: float) -> int:
    """Of whole segments, how many inner steps a unit may have to be done in the time; at least one segment."""
    training = spec.training
    segments = int(allowed_seconds / compute_seconds * training.inner_steps) // training.segment_steps
    return max(1, segments) * training.segment_steps


def _long_units(spec: TrainingSpec, expected: ExpectedThroughput, longest: float) -> Advice | None:
    """Nodes need not reach the reference speed: a third of it must do."""
    seconds = expected.compute_seconds
    if seconds * SLOWNESS <= longest:
        return None
    fewer = max_inner_steps(spec, seconds, longest / SLOWNESS)
    return Advice(
        code="long_units",
        detail=f"One unit takes {seconds:.4g} s at the tier's reference speed, without transfers. A round that cannot "
        f"be closed within {longest:.4g} s fails its job, and what is not verified is refunded.",
        remedy=f"Take at most {fewer} inner_steps a round, so that a node of a third of that speed is in time.",
        field="training_config.inner_steps",
    )


def _few_rounds(spec: TrainingSpec) -> Advice | None:
    """Sparse updates move that many entries of each chunk in a round, so few rounds leave most of a model as it was."""
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


def _low_throughput(spec: TrainingSpec, expected: ExpectedThroughput) -> Advice | None:
    if not expected.is_poor:
        return None
    delay = "" if spec.training.round_delay else "round_delay 1, "
    return Advice(
        code="low_throughput",
        detail=f"Over {expected.down_mbps:g}/{expected.up_mbps:g} Mb/s a round is expected to take "
        f"{expected.round_seconds:.3g} s, of which its nodes train {expected.compute_seconds:.3g} s: "
        f"{expected.share_of_ideal:.0%} of the throughput that they would have in one place.",
        remedy=f"Take {delay}a larger batch_size, more inner_steps a round, or a smaller top_k and down_top_k; what "
        "they cost in loss is in the user guide.",
        field="training_config",
    )
