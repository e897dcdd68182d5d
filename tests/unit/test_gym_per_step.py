"""Per-step data parallelism over real processes and torch.distributed."""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from training_gym.config import METHODS, ModelConfig, TrainingConfig, TrainingSpec
from training_gym.distributed.per_step import ProcessGroup
from training_gym.distributed.trace import Unit, check_result, load_boundary_state, state_path
from training_gym.distributed.unit import run_unit
from training_gym.errors import SpecError
from training_gym.models.layout import initial_parameters
from training_gym.slot_state import fresh_slot_state

TEXT = b"".join(b"the %d sheep of the zoo count %d times. " % (n % 10, n % 7) for n in range(400))
SPEC = TrainingSpec(
    ModelConfig(hidden_size=32, num_layers=1, num_heads=2, sequence_length=16),
    "unused",
    TrainingConfig(rounds=1, inner_steps=8, segment_steps=4, batch_size=2, learning_rate=1e-2, averaging="steps"),
)
WORKERS = 4


def unit_of(spec: TrainingSpec) -> Unit:
    zeros = "0x" + "00" * 32
    start = initial_parameters(spec.model, spec.training.seed)
    return Unit(spec, zeros, 0, 0, start, np.frombuffer(TEXT, np.uint8), fresh_slot_state(spec), zeros)


def train(spec: TrainingSpec, directory: Path, processes: int, rank: int, answers: Any = None) -> None:
    """One process of the group; it answers with its trace root, the bytes it sent and its losses."""
    workdir = directory / f"{processes}-{rank}"
    workdir.mkdir()
    meeting = f"file://{directory}/meeting-{processes}"
    dist.init_process_group("gloo", init_method=meeting, world_size=processes, rank=rank)
    losses: list[float] = []
    try:
        group, unit = ProcessGroup(spec, WORKERS), unit_of(spec)
        result = run_unit(unit, workdir, lambda step, loss: losses.append(loss), group)
        check_result(unit, result)
        answers.put((rank, result.trace_root, group.bytes_sent, losses))
    finally:
        dist.destroy_process_group()


@pytest.fixture
def run(tmp_path: Path) -> Callable[[TrainingSpec, int], list[Any]]:
    def over(spec: TrainingSpec, processes: int) -> list[Any]:
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        started = [
            context.Process(target=train, args=(spec, tmp_path, processes, rank, answers)) for rank in range(processes)
        ]
        for process in started:
            process.start()
        found = sorted(answers.get(timeout=600) for _ in started)
        for process in started:
            process.join()
        return found

    return over


def end_of(spec: TrainingSpec, directory: Path, processes: int, rank: int) -> dict[str, Any]:
    path = state_path(directory / f"{processes}-{rank}", spec.segments)
    return load_boundary_state(spec, path.read_bytes())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_group_makes_the_steps_of_one_large_batch(
    run: Callable[[TrainingSpec, int], list[Any]], tmp_path: Path, optimizer: str
) -> None:
    spec = replace(SPEC, training=replace(SPEC.training, optimizer=optimizer))
    alone, pair = run(spec, 1), run(spec, 2)
    assert pair[0][1] == pair[1][1]  # one trace, in whichever process
    assert {answer[2] for answer in alone + pair} == {4 * spec.num_parameters() * spec.training.inner_steps}
    assert np.mean([answer[3] for answer in pair], axis=0) == pytest.approx(alone[0][3], rel=1e-4)
    one, other = end_of(spec, tmp_path, 1, 0), end_of(spec, tmp_path, 2, 1)
    for name, array in initial_parameters(spec.model, spec.training.seed).items():
        moved = np.linalg.norm(one[f"parameters.{name}"] - array)
        apart = np.linalg.norm(one[f"parameters.{name}"] - other[f"parameters.{name}"])
        assert apart < 0.01 * moved, name


def test_powersgd_sends_factors_and_learns(run: Callable[[TrainingSpec, int], list[Any]]) -> None:
    dense = 4 * SPEC.num_parameters() * SPEC.training.inner_steps
    spec = replace(SPEC, training=replace(SPEC.training, powersgd_rank=1))
    first, second = run(spec, 2)
    assert first[1] == second[1]
    assert dense / 2 < first[2] < 0.6 * dense  # two of each segment's four steps are dense
    losses = np.mean([first[3], second[3]], axis=0)
    assert losses[-1] < losses[0] - 0.5


def test_the_method_powersgd_has_segments_in_which_it_begins(run: Callable[[TrainingSpec, int], list[Any]]) -> None:
    """It is whole for two steps of each segment, and the plain default has no more."""
    settings = {"method": "powersgd", "batch_size": 1}
    document = {"model_config": SPEC.to_dict()["model_config"], "data_config": {"dataset": "x" * 46}}
    spec = TrainingSpec.from_dict(document | {"training_config": settings})
    (sent,) = {answer[2] for answer in run(spec, 2)}
    assert sent < 4 * spec.num_parameters() * spec.training.inner_steps / 2


def test_segments_in_which_powersgd_never_begins_are_refused(tmp_path: Path) -> None:
    spec = replace(SPEC, training=replace(SPEC.training, powersgd_rank=1, segment_steps=2))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", world_size=1, rank=0)
    try:
        with pytest.raises(SpecError) as refusal:
            ProcessGroup(spec, WORKERS)
    finally:
        dist.destroy_process_group()
    assert (refusal.value.field, refusal.value.code) == ("training_config.segment_steps", "out_of_range")


def test_a_group_is_for_specifications_that_ask_for_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="averaging") as refusal:
        run_unit(unit_of(SPEC), tmp_path)
    assert refusal.value.field == "training_config.averaging"
    assert METHODS["ddp"]["averaging"] == METHODS["powersgd"]["averaging"] == "steps"
