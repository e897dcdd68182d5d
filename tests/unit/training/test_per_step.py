"""Per-step data parallelism over real processes and torch.distributed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from kit.engines.processes import ANSWERS, in_processes
from kit.training import TEXT

from training_gym.data.dataset import one_shard
from training_gym.model.layout import initial_parameters
from training_gym.optimise.parallel_steps import ProcessGroup
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.errors import SpecError
from training_gym.spec.methods import METHODS
from training_gym.units.checkpoint import CheckpointManifest, load_state, save_state
from training_gym.units.replica_state import fresh_slot_state, load_slot_state
from training_gym.units.trace import Unit, check_result, load_boundary_state, parameters_of, state_path
from training_gym.units.unit import run_unit
from zoo_protocol.content.unixfs import cid_of_file

SPEC = TrainingSpec(
    read_model({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16}),
    "unused",
    TrainingConfig(
        rounds=1,
        inner_steps=8,
        segment_steps=4,
        batch_size=2,
        learning_rate=1e-2,
        final_rate_share=1.0,
        averaging="steps",
    ),
)
WORKERS = 4


def unit_of(spec: TrainingSpec, after: Path | None = None) -> Unit:
    zeros, start, held = "0x" + "00" * 32, initial_parameters(spec), fresh_slot_state(spec)
    if after is not None:
        manifest = CheckpointManifest.from_bytes((after / "checkpoint.json").read_bytes())
        start = load_state(spec, (after / manifest.model).read_bytes())
        held = load_slot_state(spec, (after / manifest.slot_states["0"]).read_bytes())
    return Unit(spec, zeros, int(after is not None), 0, start, one_shard(spec, TEXT), held, zeros)


def train_on(spec: TrainingSpec, directory: Path, rank: int, answers: Any, first: int) -> None:
    meeting = f"file://{directory}/meeting-from-{first}"
    dist.init_process_group("gloo", init_method=meeting, world_size=2, rank=rank)
    try:
        group, roots, before = ProcessGroup(spec, WORKERS), [], directory / f"0-{rank}" if first else None
        for round_ in range(first, 2):
            workdir = directory / f"{round_}-{rank}"
            workdir.mkdir(exist_ok=True)
            parent = cid_of_file((before / "checkpoint.json").read_bytes()) if before else None
            result = run_unit(unit_of(spec, before), workdir, group=group, parent=parent)
            before = workdir
            roots.append(result.trace_root)
        answers.put((rank, roots))
    finally:
        dist.destroy_process_group()


def train(spec: TrainingSpec, directory: Path, processes: int, rank: int, answers: Any = None) -> None:
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
        return in_processes(train, [(spec, tmp_path, processes, rank, ANSWERS) for rank in range(processes)])

    return over


def end_of(spec: TrainingSpec, directory: Path, processes: int, rank: int) -> dict[str, Any]:
    path = state_path(directory / f"{processes}-{rank}", spec.segments)
    return load_boundary_state(spec, path.read_bytes())


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("muon", marks=pytest.mark.long)])
def test_group_takes_steps_of_one_large_batch(
    run: Callable[[TrainingSpec, int], list[Any]], tmp_path: Path, optimizer: str
) -> None:
    spec = replace(SPEC, training=replace(SPEC.training, optimizer=optimizer))
    alone, pair = run(spec, 1), run(spec, 2)
    assert pair[0][1] == pair[1][1]  # one trace, in whichever process
    assert {answer[2] for answer in alone + pair} == {4 * spec.num_parameters() * spec.training.inner_steps}
    assert np.mean([answer[3] for answer in pair], axis=0) == pytest.approx(alone[0][3], rel=1e-4)
    one, other = end_of(spec, tmp_path, 1, 0), end_of(spec, tmp_path, 2, 1)
    for name, array in initial_parameters(spec).items():
        moved = np.linalg.norm(one[f"parameters.{name}"] - array)
        apart = np.linalg.norm(one[f"parameters.{name}"] - other[f"parameters.{name}"])
        assert apart < 0.01 * moved, name


@pytest.mark.long
def test_powersgd_sends_factors_and_learns(run: Callable[[TrainingSpec, int], list[Any]]) -> None:
    dense = 4 * SPEC.num_parameters() * SPEC.training.inner_steps
    spec = replace(SPEC, training=replace(SPEC.training, powersgd_rank=1))
    first, second = run(spec, 2)
    assert first[1] == second[1]
    assert dense / 2 < first[2] < 0.6 * dense  # two of each segment's four steps are dense
    losses = np.mean([first[3], second[3]], axis=0)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize(
    ("optimizer", "powersgd_rank"), [pytest.param("muon", 0, marks=pytest.mark.long), ("adamw", 1)]
)
def test_other_group_continues_from_round_files_bit_exactly(tmp_path: Path, optimizer: str, powersgd_rank: int) -> None:
    changed = {"rounds": 2, "warmup_steps": 12, "optimizer": optimizer, "powersgd_rank": powersgd_rank}
    spec = replace(SPEC, training=replace(SPEC.training, **changed))
    (_, whole), (_, same) = in_processes(train_on, [(spec, tmp_path, rank, ANSWERS, 0) for rank in range(2)])
    assert whole == same
    resumed = in_processes(train_on, [(spec, tmp_path, rank, ANSWERS, 1) for rank in range(2)])
    assert resumed == [(0, whole[1:]), (1, whole[1:])]
    first, last = ((tmp_path / folder / "checkpoint.json").read_bytes() for folder in ("0-0", "1-1"))
    manifest = CheckpointManifest.from_bytes(last)
    assert (manifest.round, manifest.data_cursor, manifest.parent) == (2, 16, cid_of_file(first))
    assert manifest.spec_hash == spec.spec_hash()
    state = load_boundary_state(spec, state_path(tmp_path / "1-0", spec.segments).read_bytes())
    assert manifest.model == cid_of_file(save_state(parameters_of(state)))


def test_powersgd_method_has_segments_beyond_its_start(run: Callable[[TrainingSpec, int], list[Any]]) -> None:
    """PowerSGD starts after two steps of a segment; plain segments have only two."""
    settings = {"method": "powersgd", "batch_size": 1}
    document = {"model_config": SPEC.to_dict()["model_config"], "data_config": {"dataset": "x" * 46}}
    spec = TrainingSpec.from_dict(document | {"training_config": settings})
    (sent,) = {answer[2] for answer in run(spec, 2)}
    assert sent < 4 * spec.num_parameters() * spec.training.inner_steps / 2


def test_segments_without_powersgd_start_are_refused(tmp_path: Path) -> None:
    spec = replace(SPEC, training=replace(SPEC.training, powersgd_rank=1, segment_steps=2))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", world_size=1, rank=0)
    try:
        with pytest.raises(SpecError) as refusal:
            ProcessGroup(spec, WORKERS)
    finally:
        dist.destroy_process_group()
    assert (refusal.value.field, refusal.value.code) == ("training_config.segment_steps", "out_of_range")


def test_group_requires_per_step_specification(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="averaging") as refusal:
        run_unit(unit_of(SPEC), tmp_path)
    assert refusal.value.field == "training_config.averaging"
    assert METHODS["ddp"]["averaging"] == METHODS["powersgd"]["averaging"] == "steps"
