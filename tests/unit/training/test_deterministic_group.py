"""The ordered reduction over real processes: the same bits whatever their number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from kit.engines.processes import ANSWERS, in_processes

from training_gym.data.dataset import one_shard
from training_gym.model.layout import initial_parameters
from training_gym.optimise.ordered_parallel import DeterministicGroup
from training_gym.optimise.parallel_steps import ProcessGroup
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.errors import SpecError
from training_gym.units.replica_state import fresh_slot_state
from training_gym.units.trace import Unit, check_result
from training_gym.units.unit import run_unit

TEXT = b"".join(b"the %d sheep of the zoo count %d times. " % (n % 10, n % 7) for n in range(401))
SHARDS = 8


def spec_of(optimizer: str, batch_size: int) -> TrainingSpec:
    training = TrainingConfig(rounds=1, inner_steps=4, segment_steps=2, learning_rate=1e-2, averaging="steps")
    return TrainingSpec(
        read_model({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16}),
        "unused",
        replace(training, optimizer=optimizer, batch_size=batch_size),
    )


def _train(kind: Any, specs: list[TrainingSpec], directory: Path, processes: int, rank: int, answers: Any) -> None:
    configure(CPU)
    meeting = f"file://{directory}/meeting-{kind.__name__}-{processes}"
    dist.init_process_group("gloo", init_method=meeting, world_size=processes, rank=rank)
    found = []
    try:
        for number, spec in enumerate(specs):
            workdir = directory / f"{kind.__name__}-{processes}-{rank}-{number}"
            workdir.mkdir()
            zeros = "0x" + "00" * 32
            start = initial_parameters(spec)
            unit = Unit(spec, zeros, 0, 0, start, one_shard(spec, TEXT), fresh_slot_state(spec), zeros)
            group = kind(spec, SHARDS)
            result = run_unit(unit, workdir, group=group)
            check_result(unit, result)
            found.append((result.trace_root.hex(), result.train_loss, group.bytes_sent))
        answers.put((rank, found))
    finally:
        dist.destroy_process_group()


def run(kind: Any, specs: list[TrainingSpec], directory: Path, processes: int) -> list[Any]:
    found = in_processes(_train, [(kind, specs, directory, processes, rank, ANSWERS) for rank in range(processes)])
    return [of_rank for _, of_rank in found]


@pytest.mark.long
@pytest.mark.parametrize("processes", [2, 3, 8])
def test_unit_trace_is_equal_over_any_process_count(tmp_path: Path, processes: int) -> None:
    specs = [spec_of(optimizer, size) for optimizer in ("adamw", "muon") for size in (2, 3)]
    ((alone),) = run(DeterministicGroup, specs, tmp_path, 1)
    assert len({root for root, _, _ in alone}) == len(specs)
    for one in run(DeterministicGroup, specs, tmp_path, processes):
        assert [answer[:2] for answer in one] == [answer[:2] for answer in alone]
        most = -(-SHARDS // processes)
        sent = [4 * most * (1 + spec.num_parameters()) * spec.training.inner_steps for spec in specs]
        assert [answer[2] for answer in one] == sent


@pytest.mark.long
def test_unordered_all_reduce_changes_bits(tmp_path: Path) -> None:
    """Otherwise the test above could not fail, and the ordered reduction would be useless."""
    specs = [spec_of("adamw", 3)]
    roots = {run(ProcessGroup, specs, tmp_path, processes)[0][0][0] for processes in (1, 2, 4)}
    assert len(roots) > 1


def test_inexact_group_is_refused(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", world_size=1, rank=0)
    try:
        spec = spec_of("adamw", 2)
        with pytest.raises(ValueError, match="shards is 0"):
            DeterministicGroup(spec, 0)
        with pytest.raises(SpecError) as refusal:
            DeterministicGroup(replace(spec, training=replace(spec.training, powersgd_rank=1)), SHARDS)
    finally:
        dist.destroy_process_group()
    assert refusal.value.field == "training_config.powersgd_rank"
