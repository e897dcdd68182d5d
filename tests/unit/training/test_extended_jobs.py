"""Jobs that are stopped and extended twice, against the same jobs run at once.

The reference runs all rounds. Its double stops after a third and after two thirds of them, and goes on by the market's
own continuation. What it keeps gives the same parameters; what it loses may cost no more than the noise of seeds.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from kit.base_models import write_base
from kit.training import SMALL, TEXT, shard_of_rows, unit_of

from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, load_outer_state, save_outer_state
from training_gym.data.dataset import Split, one_shard
from training_gym.data.shards import Layout
from training_gym.evaluate.loss import validation_loss
from training_gym.exchange.early_start import start_parameters
from training_gym.model.layout import Arrays, NamedArrays, initial_parameters
from training_gym.model.network import base_of
from training_gym.model.tensors import flatten
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.checkpoint import load_state, save_state
from training_gym.units.continuations import continuation
from training_gym.units.replica_state import ReplicaState, fresh_slot_state
from training_gym.units.unit import run_unit

CID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
REPLICAS, PARTS, SEEDS = 2, 3, range(3)
# The warm-up is short against a part, as in a real job: each extension repeats it.
SHORT = {"inner_steps": 5, "segment_steps": 5, "batch_size": 4, "warmup_steps": 1}
SUMS = [(n, n * 7 % 10, n * 3 % 8) for n in range(600)]
"""Numbers of a question, of its answer and of a wrong answer."""

Files = dict[str, Path]


@dataclass(frozen=True)
class Case:
    """Settings of a job.

    ``rounds`` are those of a part. Adapters and the objective ``dpo`` have a base model.
    """

    training: dict[str, Any] = field(default_factory=dict)
    adapter: dict[str, Any] | None = None
    rounds: int = 3

    def spec(self, seed: int, parts: int = PARTS) -> TrainingSpec:
        is_based = self.adapter is not None or self.training.get("objective") == "dpo"
        document = {
            "model_config": SMALL.to_dict() | ({"base": CID} if is_based else {}),
            "data_config": {"dataset": CID, "replicas": REPLICAS},
            "training_config": SHORT | {"rounds": parts * self.rounds, "seed": seed} | self.training,
        }
        return TrainingSpec.from_dict(document | ({"adapter_config": self.adapter} if self.adapter else {}))


CASES = {
    "default": Case(),
    "round_delay": Case({"round_delay": 1}),
    "slow_links": Case({"method": "slow_links"}, rounds=15),
    "adapter": Case({"learning_rate": 1e-2}, adapter={"r": 4, "lora_dropout": 0.1}),
    "sft": Case({"objective": "sft"}),
    "dpo": Case({"objective": "dpo", "learning_rate": 1e-3}),
    "bfloat16": Case({"precision": "bfloat16"}),
    "gradient_shards": Case({"gradient_shards": 4}),
}
IN_EVERY_RUN = "default", "round_delay"
EVERY_CASE = [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.long) for name in CASES]


@dataclass(frozen=True)
class Reached:
    """State of a job between rounds.

    The start of a round before its aggregation needs the ``earlier`` checkpoint and the replicas' own ``payloads``.
    """

    parameters: Arrays
    outer: OuterState
    replicas: dict[int, ReplicaState]
    earlier: Arrays
    payloads: dict[int, bytes] = field(default_factory=dict)


HandOver = Callable[[TrainingSpec, TrainingSpec, Reached], Reached]
"""(specification before, its continuation's, end of the former) -> start of the latter."""


@cache
def shards(objective: str) -> tuple[tuple[bytes, Layout, int], ...]:
    """Return the training and the validation split of an objective: file, layout, samples."""
    if objective == "causal_lm":
        return tuple((part, Layout(), 0) for part in (TEXT[:-3000], TEXT[-3000:]))
    rows = list(answers(objective))
    kind, per_sample = ("chat", 1) if objective == "sft" else ("preferences", 2)
    cut = len(rows) * 5 // 6
    return tuple((shard_of_rows(part), Layout(kind), len(part) // per_sample) for part in (rows[:cut], rows[cut:]))


def answers(objective: str) -> Iterator[tuple[list[int], list[int]]]:
    for asked, right, wrong in SUMS:
        for answer in (right, wrong) if objective == "dpo" else (right,):
            prompt, text = b"7 times %d is " % (asked % 10), b"%d. " % answer
            yield [*prompt, *text], [0] * len(prompt) + [1] * len(text)


def split(spec: TrainingSpec, number: int) -> Split:
    content, layout, samples = shards(spec.training.objective)[number]
    return one_shard(spec, content, layout, samples)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return the file of the base model."""
    folder = tmp_path_factory.mktemp("base")
    write_base(folder, SMALL)
    return {"model": folder / "model.safetensors"}


def fresh_replicas(spec: TrainingSpec) -> dict[int, ReplicaState]:
    return dict.fromkeys(range(REPLICAS), fresh_slot_state(spec))


def begun(spec: TrainingSpec) -> Reached:
    """Return the start of a job; one of all parameters on a base model starts from that."""
    fresh = replace(spec, training=TrainingConfig(seed=7)) if spec.base and spec.adapter is None else spec
    parameters = initial_parameters(fresh)
    return Reached(parameters, initial_outer_state(spec), fresh_replicas(spec), parameters)


def trained(spec: TrainingSpec, rounds: int, reached: Reached, base: Files) -> Reached:
    """Train the first ``rounds`` of a job."""
    train, files = split(spec, 0), base if spec.reads_base else None
    for round_ in range(rounds):
        payloads, replicas = {}, {}
        for slot, state in reached.replicas.items():
            start: NamedArrays = start_parameters(spec, reached.earlier, reached.payloads.get(slot))
            given = {"round": round_, "slot": slot, "checkpoint": start, "slot_state": state, "base": files}
            with TemporaryDirectory() as folder:
                result = run_unit(unit_of(spec, train=train, **given), Path(folder))
            payloads[slot], replicas[slot] = result.payload, result.slot_state
        done = aggregate(spec, reached.parameters, payloads, outer_state=reached.outer)
        overlapped = spec.training.round_delay
        reached = Reached(
            done.parameters,
            done.outer_state,
            replicas,
            reached.parameters if overlapped else done.parameters,
            payloads if overlapped else {},
        )
    return reached


def from_checkpoint(before: TrainingSpec, spec: TrainingSpec, reached: Reached) -> Reached:
    """Return what the market reads from a checkpoint's files."""
    parameters = load_state(spec, save_state(reached.parameters))
    outer = load_outer_state(spec, save_outer_state(before, reached.outer))
    return Reached(parameters, outer, fresh_replicas(spec), parameters)


def with_replicas(before: TrainingSpec, spec: TrainingSpec, reached: Reached) -> Reached:
    """Return also what no continuation has: replica states and the early start."""
    kept = from_checkpoint(before, spec, reached)
    return replace(kept, replicas=reached.replicas, earlier=reached.earlier, payloads=reached.payloads)


def extended(case: Case, seed: int, base: Files, hand_over: HandOver = from_checkpoint) -> Arrays:
    """Return the model of a job that is stopped and extended twice."""
    spec = case.spec(seed)
    reached = trained(spec, case.rounds, begun(spec), base)
    for _ in range(PARTS - 1):
        left = spec.training.rounds - case.rounds
        before, spec = spec, TrainingSpec.from_dict(continuation(spec.to_dict(), case.rounds, CID, left))
        reached = trained(spec, case.rounds, hand_over(before, spec, reached), base)
    return reached.parameters


def whole(case: Case, seed: int, base: Files, parts: int = PARTS) -> Arrays:
    """Return the model of a job of so many ``parts`` that is run at once."""
    spec = case.spec(seed, parts)
    return trained(spec, spec.training.rounds, begun(spec), base).parameters


def loss_of(case: Case, parameters: Arrays, base: Files) -> float:
    spec = case.spec(0)
    tensors = base_of(spec.model, base, spec.training.precision) if spec.reads_base else None
    return validation_loss(spec, parameters, split(spec, 1), base=tensors)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_continuation_keeps_all_but_replicas(name: str, base: Files) -> None:
    case = replace(CASES[name], rounds=3)
    at_once, continued = (flatten(one) for one in (whole(case, 0, base), extended(case, 0, base, with_replicas)))
    np.testing.assert_allclose(continued, at_once, rtol=0, atol=1e-6)  # rates are rounded in another order


@pytest.mark.parametrize("name", EVERY_CASE)
def test_job_extended_twice_ends_as_whole_one(name: str, base: Files) -> None:
    case = CASES[name]
    at_once = [loss_of(case, whole(case, seed, base), base) for seed in SEEDS]
    continued = [loss_of(case, extended(case, seed, base), base) for seed in SEEDS]
    alone = loss_of(case, whole(case, 0, base, parts=1), base)
    noise, usual = max(at_once) - min(at_once), statistics.fmean(at_once)
    assert statistics.fmean(continued) - usual < noise < alone - usual  # the last part alone costs more
