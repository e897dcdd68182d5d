"""Operations and memory of units, against counted operations and measured memory."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.training import rows_of, shard_of_rows, unit_of
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from training_gym.data.dataset import one_shard, training_samples
from training_gym.data.samples import collate
from training_gym.data.shards import Layout
from training_gym.model.folder import write_folder
from training_gym.model.layout import initial_parameters
from training_gym.model.network import Network, rows_on
from training_gym.optimise.inner import optimizer_step
from training_gym.spec.adapters import read_adapter
from training_gym.spec.architectures import ARCHITECTURES, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.costs import HEAP_BYTES, flops_per_unit, unit_memory_bytes
from training_gym.units.steps import network_of, train_steps
from training_gym.units.trace import Unit, start_state

MEMORY_FACTOR = 1.5
"""The estimate is at most so many times the training's peak, and never less; ``test_memory`` has the whole unit's."""
SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "sequence_length": 96, "vocab_size": 512}


class PeakMemory(TorchDispatchMode):
    """Bytes of the storages that operations have made and that live, and their highest sum."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known = weakref.WeakSet[torch.UntypedStorage]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage not in self._known:
            self._known.add(storage)
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size: int) -> None:
        self.live -= size


def spec_of(architecture: str, **training: Any) -> TrainingSpec:
    model = read_model(SIZES | {"architecture": architecture})
    steps = {"inner_steps": 3, "segment_steps": 1, "batch_size": 4, "warmup_steps": 0, "optimizer": "adamw"}
    return TrainingSpec(model, "unused", TrainingConfig(**steps | training))


def adapted(spec: TrainingSpec, folder: Path) -> Unit:
    write_folder(spec.model, initial_parameters(spec), folder)
    adapter = read_adapter({"r": 4, "lora_dropout": 0.1}, spec.model)
    return unit_of(replace(spec, base="base", adapter=adapter), base={"model": folder / "model.safetensors"})


def preferences(spec: TrainingSpec, folder: Path) -> Unit:
    """Build a unit of the whole model on answers of full length."""
    write_folder(spec.model, initial_parameters(spec), folder)
    rows = [([7] * (spec.model.sequence_length + 1), [1] * (spec.model.sequence_length + 1))] * 16
    train = one_shard(spec, shard_of_rows(rows), Layout("preferences"), 8)
    return unit_of(replace(spec, base="base"), train=train, base={"model": folder / "model.safetensors"})


def check_memory(unit: Unit) -> None:
    state = {name: array.copy() for name, array in start_state(unit).items()}
    with PeakMemory() as memory:
        train_steps(unit, state, range(1), lambda *_: None)
    measured = memory.peak + unit.slot_state.error_feedback.nbytes  # the other inputs stay in files
    estimate = unit_memory_bytes(unit.spec) - HEAP_BYTES  # tensors are measured, not the process
    assert measured <= estimate <= MEMORY_FACTOR * measured


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        *((architecture, {}) for architecture in ARCHITECTURES),
        ("llama", {"activation_checkpointing": True}),
        ("llama", {"precision": "bfloat16"}),
        ("llama", {"micro_batch_size": 1}),
        ("llama", {"gradient_shards": 4}),
        ("gemma2", {"precision": "bfloat16", "activation_checkpointing": True}),
        ("gpt2", {"optimizer": "muon"}),
    ],
)
@pytest.mark.parametrize("with_adapter", [False, True])
def test_memory_estimate_bounds_measured_peak(
    architecture: str, settings: dict[str, Any], with_adapter: bool, tmp_path: Path
) -> None:
    if with_adapter:
        settings = settings | {"optimizer": "adamw"}
    spec = spec_of(architecture, **settings)
    unit = adapted(spec, tmp_path) if with_adapter else unit_of(spec)
    check_memory(unit)


def test_memory_estimate_covers_pairs_and_reference(tmp_path: Path) -> None:
    check_memory(preferences(spec_of("llama", objective="dpo"), tmp_path))


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_operation_counts_include_reference(architecture: str, tmp_path: Path) -> None:
    unit = preferences(spec_of(architecture, objective="dpo"), tmp_path)
    network = network_of(unit, unit.checkpoint)
    rows = rows_on("cpu", collate(training_samples(unit.spec, unit.train, 0, 0, 0)))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(rows, rows.terms).backward()
    assert flops_per_unit(unit.spec) == 3 * counter.get_total_flops()


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
@pytest.mark.parametrize("checkpointing", [False, True])
def test_operation_counts_match_network(architecture: str, checkpointing: bool) -> None:
    spec = spec_of(architecture, activation_checkpointing=checkpointing)
    rows = rows_of(torch.zeros(4, spec.model.sequence_length + 1))
    network = Network(spec, initial_parameters(spec), "cpu")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # others are not counted
        network(rows, rows.terms).backward()
    assert flops_per_unit(spec) == 3 * counter.get_total_flops()
    moments = {name: (torch.zeros_like(value),) * 2 for name, value in network.trained().items()}
    muon = replace(spec, training=replace(spec.training, optimizer="muon"))
    with FlopCounterMode(display=False) as counter:
        optimizer_step(muon, network.trained(), moments, 0, 1.0)
    assert flops_per_unit(muon) - flops_per_unit(spec) == 3 * counter.get_total_flops()
