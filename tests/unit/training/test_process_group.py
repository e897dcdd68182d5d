"""Units of several real processes: the bits of one process, replicated or sharded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kit.engines.processes import ANSWERS, in_processes
from kit.training import TEXT, shard_of_rows, spec_of, unit_of

from training_gym.data.dataset import one_shard
from training_gym.data.shards import Layout
from training_gym.model.folder import write_folder
from training_gym.model.layout import initial_parameters
from training_gym.optimise.ordered_sum import TreeSum, tree_sum
from training_gym.optimise.process_group import joined
from training_gym.runtime.determinism import configure
from training_gym.runtime.profile import CPU
from training_gym.spec.adapters import read_adapter
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import TrainingDiverged
from training_gym.units.probe import probe_digest, probe_unit
from training_gym.units.steps import finish, follow, train_together
from training_gym.units.trace import Unit, check_result, state_path
from training_gym.units.unit import replay_segment, run_unit

SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "sequence_length": 16}
"""No size is a multiple of eight processes' slices."""
STEPS = {"inner_steps": 4, "segment_steps": 2, "batch_size": 8, "warmup_steps": 0, "gradient_clip": 0.1}
ROWS = [
    ([1, 2, 3, 4, 5], [0, 0, 1, 1, 1]),
    ([1, 2, 7, 8], [0, 0, 1, 1]),
    ([9] * 10 + [11, 12, 13], [0] * 10 + [1] * 3),
    ([9] * 10 + [4], [0] * 10 + [1]),
]


def model_spec(architecture: str = "llama", **training: Any) -> TrainingSpec:
    grouped = {"num_key_value_heads": 1} if architecture == "llama" else {}
    model = read_model(SIZES | grouped | {"architecture": architecture})
    return spec_of(model, **STEPS | {"gradient_shards": 4} | training)


def model_unit(architecture: str = "llama", **training: Any) -> Unit:
    return unit_of(model_spec(architecture, **training))


def adapter_unit(folder: Path, **training: Any) -> Unit:
    whole = model_spec(optimizer="adamw", **training)
    write_folder(whole.model, initial_parameters(whole), folder)
    spec = replace(whole, base="base", adapter=read_adapter({"r": 4, "lora_dropout": 0.1}, whole.model))
    if spec.training.objective == "dpo":
        train = one_shard(spec, shard_of_rows(ROWS * 16), Layout("preferences"), 32)
    else:
        train = one_shard(spec, TEXT)
    return unit_of(spec, train=train, base={"model": folder / "model.safetensors"})


def chat_unit() -> Unit:
    spec = model_spec(objective="sft", micro_batch_size=1)
    return unit_of(spec, train=one_shard(spec, shard_of_rows(ROWS * 8), Layout("chat"), 32))


def _train(units: list[Unit], directory: Path, processes: int, rank: int, answers: Any) -> None:
    configure(CPU)
    found = []
    for sharded in (False, True):
        for number, unit in enumerate(units):
            place = f"{processes}-{sharded}-{number}"
            with joined(directory / f"meeting-{place}", rank, processes, "cpu", sharded) as group:
                probe = probe_unit(unit)
                if rank:
                    follow(unit, group)
                    follow(probe, group)
                    continue
                workdir = directory / place
                workdir.mkdir()
                result = run_unit(unit, workdir, train=train_together(group))
                finish(group, "cpu")
                check_result(unit, result)
                state = state_path(workdir, 1).read_bytes()
                replayed = replay_segment(unit, 1, result.leaves[1], state) == result.leaves[2]
                probed = probe_digest(probe, train_together(group)).hex()
                finish(group, "cpu")
                found.append((result.trace_root.hex(), probed, result.train_loss, replayed))
    answers.put((rank, found))


def traces(units: list[Unit], directory: Path, processes: int) -> list[tuple[str, str, float, bool]]:
    """Return root, probe, loss and success of a replay of each unit; then all sharded."""
    found = in_processes(_train, [(units, directory, processes, rank, ANSWERS) for rank in range(processes)])
    return found[0][1]


def assert_equal_traces(units: list[Unit], directory: Path) -> None:
    alone = traces(units, directory, 1)
    assert len({root for root, *_ in alone}) == len(units)
    assert all(replayed for *_, replayed in alone)
    for processes in (2, 4):
        assert traces(units, directory, processes) == alone


def test_two_and_four_processes_give_bits_of_one(tmp_path: Path) -> None:
    assert_equal_traces([model_unit()], tmp_path)


@pytest.mark.long
def test_other_units_of_processes_give_bits_of_one(tmp_path: Path) -> None:
    units = [
        *(model_unit(architecture, optimizer="adamw") for architecture in ("gpt2", "gemma2", "qwen3")),
        model_unit(precision="bfloat16", gradient_shards=8, activation_checkpointing=True),
        model_unit("mistral", micro_batch_size=1),
        adapter_unit(tmp_path / "base"),
        adapter_unit(tmp_path / "narrow", precision="bfloat16"),
        adapter_unit(tmp_path / "dpo", objective="dpo"),
        chat_unit(),
    ]
    assert_equal_traces(units, tmp_path)


def _diverge(unit: Unit, directory: Path, rank: int, answers: Any) -> None:
    configure(CPU)
    found = []
    for sharded in (False, True):
        with joined(directory / f"meeting-{sharded}", rank, 2, "cpu", sharded) as group:
            try:
                follow(unit, group) if rank else run_unit(unit, directory, train=train_together(group))
            except TrainingDiverged as error:
                found.append(str(error))
    answers.put((rank, found))


def test_all_processes_see_non_finite_gradient(tmp_path: Path) -> None:
    """A large head after small embeddings overflows the gradients of the first step."""
    unit = model_unit()
    scales = {"model.embed_tokens.weight": np.float32(1e-10), "lm_head.weight": np.float32(1e37)}
    start = {**unit.checkpoint, **{name: unit.checkpoint[name] * scale for name, scale in scales.items()}}
    poisoned = replace(unit, checkpoint=start)
    found = in_processes(_diverge, [(poisoned, tmp_path, rank, ANSWERS) for rank in range(2)])
    assert [len(errors) for _, errors in found] == [2, 2]
    assert all("gradient is not finite at step 0" in error for _, errors in found for error in errors)


def test_gradient_shards_change_order_of_sum(tmp_path: Path) -> None:
    """Otherwise equal traces would show nothing about the order."""
    roots = {run_unit(model_unit(gradient_shards=shards), tmp_path).trace_root for shards in (1, 2, 4)}
    assert len(roots) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_rows_are_added_along_one_tree(count: int) -> None:
    rows = torch.randn(count, 7, generator=torch.Generator().manual_seed(count))
    level = list(rows)
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        level = [level[i] + level[i + 1] for i in range(0, len(level) - 1, 2)] + odd
    assert torch.equal(tree_sum(rows), level[0])


def test_empty_tree_sum_is_refused() -> None:
    with pytest.raises(ValueError, match="rows is empty"):
        tree_sum(torch.empty(0, 3))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_later_terms_are_added_along_same_tree(count: int) -> None:
    rows = torch.randn(count, 5, generator=torch.Generator().manual_seed(count))
    running = TreeSum()
    for row in rows:
        running.add([row.clone()])
    assert torch.equal(running.total()[0], tree_sum(rows))


def test_incomplete_tree_has_no_total() -> None:
    running = TreeSum()
    for _ in range(3):
        running.add([torch.ones(1)])
    with pytest.raises(ValueError, match="power of two"):
        running.total()
