"""Print the figures of docs/planning.md for 7 billion parameters on 100 home nodes.

Usage: python docs/examples/seven_billion.py

Speeds of compression, checks and aggregation are measured (``training_gym.exchange.round_time``). The speed of training
is the share of the published peak that the tier counts on. No torch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from market.domain.money import unit_price
from market.domain.network import MAINNET, ZEN
from market.orders.terms import MAX_UNITS
from training_gym.exchange.round_time import REFERENCE_LINK, RoundTime, round_time
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import flops_per_unit, unit_memory_bytes, unit_weight_us

NODES = 100
SEED_GPU_HOURS = 8_400
"""A100 hours of the network's announced training of 7 billion parameters."""
REVEAL_BYTES = 24
"""Per trained parameter: a segment's start state and the unit's replica state."""
MODEL = {
    "hidden_size": 4_096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32_000,
    "sequence_length": 2_048,
}
COMMON = {"precision": "bfloat16", "activation_checkpointing": True, "batch_size": 64, "micro_batch_size": 1}
IRON, BRONZE = MAINNET.tier("iron"), MAINNET.tier("bronze")


@dataclass(frozen=True)
class Plan:
    """A job on 100 nodes of the entry tier, with its first download in bytes."""

    spec: TrainingSpec
    rounds: int
    first_bytes: int

    @property
    def weight_us(self) -> int:
        """Size of a unit in GPU-microseconds at the tier's reference speed."""
        return unit_weight_us(self.spec, IRON.gpus, IRON.reference_flops_per_gpu.bfloat16)

    @property
    def round(self) -> RoundTime:
        """Duration of a round over the reference link, at the tier's reference speed."""
        return round_time(self.spec, NODES, self.weight_us / (IRON.gpus * 10**6))

    @property
    def tokens(self) -> int:
        training = self.spec.training
        per_unit = training.inner_steps * training.batch_size * self.spec.model.sequence_length
        return self.rounds * NODES * per_unit

    @property
    def cost_wei(self) -> int:
        """Cost of all units at the reserve price."""
        return unit_price(IRON.reserve_price_wei, self.weight_us) * self.rounds * NODES

    @property
    def reveal_bytes(self) -> int:
        return REVEAL_BYTES * self.spec.num_parameters()

    @property
    def reveal_share(self) -> float:
        """Expected number of revealed segments of a unit at the lowest sampling rate."""
        return self.spec.segments * MAINNET.sampling_floor_bps / 10_000


def whole_model() -> Plan:
    """Return a plan with the operations of the announced training."""
    spec = _spec({"model_config": MODEL}, {"method": "slow_links"})
    operations = SEED_GPU_HOURS * 3_600 * BRONZE.reference_flops_per_gpu.bfloat16
    return Plan(spec, math.ceil(operations / (NODES * flops_per_unit(spec))), 4 * spec.num_parameters())


def adapter() -> Plan:
    """Return a plan with an adapter on a base model in BF16."""
    base = {"base": "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}
    spec = _spec({"model_config": MODEL | base, "adapter_config": {"r": 16}}, {"objective": "sft"})
    return Plan(spec, 10, 2 * spec.model.num_parameters())


def _spec(sections: dict[str, Any], training: dict[str, Any]) -> TrainingSpec:
    settings = {"rounds": 10, "inner_steps": 30, "segment_steps": 6} | COMMON | training
    return TrainingSpec.from_dict(sections | {"data_config": {"dataset": "b" * 59}, "training_config": settings}, NODES)


def hours(seconds: float) -> str:
    return f"{seconds / 86_400:.1f} days" if seconds > 48 * 3_600 else f"{seconds / 3_600:.1f} h"


def upload(size: int) -> str:
    return hours(size * 8 / (REFERENCE_LINK.up_mbps * 10**6))


ROWS: list[tuple[str, Callable[[Plan], str]]] = [
    ("trained parameters", lambda plan: f"{plan.spec.num_parameters() / 10**6:,.0f} million"),
    ("memory of one unit", lambda plan: f"{unit_memory_bytes(plan.spec) / 10**9:.1f} GB"),
    ("tokens", lambda plan: f"{plan.tokens / 10**9:.1f} billion"),
    ("rounds, orders", lambda plan: f"{plan.rounds}, {-(-plan.rounds * NODES // MAX_UNITS)}"),
    ("one round, compute in it", lambda plan: f"{hours(plan.round.seconds)}, {plan.round.share:.0%}"),
    ("whole job", lambda plan: hours(plan.rounds * plan.round.seconds)),
    ("first download of a node", lambda plan: f"{plan.first_bytes / 10**9:.1f} GB"),
    ("up, down per node and round", lambda plan: f"{_mb(plan.round.up_bytes)}, {_mb(plan.round.down_bytes)}"),
    ("aggregation on one core per round", lambda plan: f"{plan.round.closing:.0f} s"),
    ("one reveal, its upload", lambda plan: f"{plan.reveal_bytes / 10**9:.1f} GB, {upload(plan.reveal_bytes)}"),
    ("reveals per unit", lambda plan: f"{plan.reveal_share:.1f}"),
    ("cost at the reserve price", lambda plan: f"{plan.cost_wei / ZEN:,.0f} ZEN"),
]


def _mb(size: int) -> str:
    return f"{size / 10**6:.1f} MB"


def main() -> None:
    """Print the table's rows in Markdown."""
    plans = whole_model(), adapter()
    for name, figure in ROWS:
        print(f"| {name} | {' | '.join(figure(plan) for plan in plans)} |")


if __name__ == "__main__":
    main()
