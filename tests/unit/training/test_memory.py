"""Peak memory of whole units, in processes of their own."""

from pathlib import Path

import pytest

from benchmarks.models import in_fresh_process
from benchmarks.training.unit_memory import unit_copies
from training_gym.runtime.profile import CPU
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.costs import HEAP_BYTES, unit_memory_bytes

MAX_COPIES = 7
"""Copies of the trained parameters at a unit's peak."""
ESTIMATE_FACTOR = 1.5


def spec_of(hidden_size: int, optimizer: str) -> TrainingSpec:
    sizes = {"hidden_size": hidden_size, "num_hidden_layers": 4, "num_attention_heads": 4, "sequence_length": 16}
    steps = {"inner_steps": 3, "segment_steps": 1, "batch_size": 1, "warmup_steps": 0}
    return TrainingSpec(read_model(sizes), "unused", TrainingConfig(optimizer=optimizer, **steps))


@pytest.mark.parametrize(
    ("hidden_size", "optimizer"), [(256, "adamw"), pytest.param(512, "muon", marks=pytest.mark.long)]
)
def test_unit_peak_stays_within_copies_and_estimate(
    hidden_size: int, optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CPU.variables.items():
        monkeypatch.setenv(name, value)
    spec = spec_of(hidden_size, optimizer)
    copies = in_fresh_process(unit_copies, spec, spec_of(32, optimizer), tmp_path)
    assert copies <= MAX_COPIES
    measured = copies * 4 * spec.num_parameters()
    assert measured <= unit_memory_bytes(spec) <= ESTIMATE_FACTOR * measured + HEAP_BYTES
