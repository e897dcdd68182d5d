"""Units of every architecture, whole models and adapters: train, replay, learn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.errors import raises_code
from kit.training import rows_of, spec_of, unit_of

from training_gym.data.dataset import validation_samples
from training_gym.evaluate.loss import mean_loss
from training_gym.model.folder import write_folder
from training_gym.model.layout import initial_parameters
from training_gym.model.network import Network, base_of
from training_gym.spec.adapters import read_adapter
from training_gym.spec.architectures import ARCHITECTURES, read_model
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError
from training_gym.units.trace import Unit, check_result, parameters_of, state_path
from training_gym.units.unit import load_boundary_state, replay_segment, run_unit

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16}
STEPS = {"inner_steps": 12, "segment_steps": 4, "batch_size": 4, "warmup_steps": 0}


def unit_for(architecture: str, adapted: bool, folder: Path) -> Unit:
    grouped = {} if architecture == "gpt2" else {"num_key_value_heads": 1}
    model = read_model(SIZES | grouped | {"architecture": architecture})
    whole = spec_of(model, **STEPS, learning_rate=1e-2)
    if not adapted:
        return unit_of(whole)
    spec = TrainingSpec(model, "unused", replace(whole.training, optimizer="adamw"), base="base")
    write_folder(model, initial_parameters(whole), folder / "base")
    base = {"model.safetensors": folder / "base" / "model.safetensors"}
    return unit_of(replace(spec, adapter=read_adapter({"r": 4, "lora_dropout": 0.1}, model)), base=base)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
@pytest.mark.parametrize("adapted", [False, True])
def test_unit_of_architecture_learns_and_replays(architecture: str, adapted: bool, tmp_path: Path) -> None:
    unit = unit_for(architecture, adapted, tmp_path)
    losses = list[float]()
    result = run_unit(unit, tmp_path, lambda step, loss: losses.append(loss))
    check_result(unit, result)
    for segment in range(unit.spec.segments):
        state = None if segment == 0 else state_path(tmp_path, segment).read_bytes()
        assert replay_segment(unit, segment, result.leaves[segment], state) == result.leaves[segment + 1]
    assert losses[-1] < losses[0]
    held, base = validation_samples(unit.train, 16), unit.base and base_of(unit.spec.model, unit.base)
    state = parameters_of(load_boundary_state(unit.spec, state_path(tmp_path, 2).read_bytes()))
    assert mean_loss(unit.spec, state, held, base=base) < mean_loss(unit.spec, unit.checkpoint, held, base=base)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_micro_batches_change_only_rounding(architecture: str, tmp_path: Path) -> None:
    unit, losses = unit_for(architecture, False, tmp_path), []
    for size in (0, 1, 3):
        training = replace(unit.spec.training, micro_batch_size=size)
        losses.append(run_unit(replace(unit, spec=replace(unit.spec, training=training)), tmp_path).train_loss)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-3)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
@pytest.mark.parametrize("adapted", [False, True])
def test_checkpointed_activations_give_equal_bits(architecture: str, adapted: bool, tmp_path: Path) -> None:
    unit = unit_for(architecture, adapted, tmp_path)
    training = replace(unit.spec.training, inner_steps=2, segment_steps=1, activation_checkpointing=True)
    kept = replace(unit, spec=replace(unit.spec, training=replace(training, activation_checkpointing=False)))
    computed = replace(unit, spec=replace(unit.spec, training=training))
    assert run_unit(computed, tmp_path) == run_unit(kept, tmp_path)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
@pytest.mark.parametrize("adapted", [False, True])
def test_bfloat16_unit_learns_and_replays(architecture: str, adapted: bool, tmp_path: Path) -> None:
    unit = unit_for(architecture, adapted, tmp_path)
    narrow = replace(unit, spec=replace(unit.spec, training=replace(unit.spec.training, precision="bfloat16")))
    losses = list[float]()
    result = run_unit(narrow, tmp_path, lambda step, loss: losses.append(loss))
    state = state_path(tmp_path, 1).read_bytes()
    assert replay_segment(narrow, 1, result.leaves[1], state) == result.leaves[2]
    assert losses[-1] < losses[0]
    wide = run_unit(unit, tmp_path)
    assert wide.end_parameters_digest != result.end_parameters_digest
    assert wide.train_loss == pytest.approx(result.train_loss, rel=0.05)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_bfloat16_base_equals_rounding_in_each_step(architecture: str, tmp_path: Path) -> None:
    unit = unit_for(architecture, True, tmp_path)
    spec = replace(unit.spec, training=replace(unit.spec.training, precision="bfloat16"))
    rows, losses = rows_of(np.arange(34).reshape(2, 17)), []
    for precision in ("float32", "bfloat16"):
        base = base_of(spec.model, unit.base or {}, precision)
        losses.append(Network(spec, unit.checkpoint, "cpu", base)(rows, rows.terms))
    assert torch.equal(*losses)


@pytest.mark.parametrize("name", ["sliding_window", "attn_logit_softcapping"])
def test_gemma_without_its_window_or_cap_is_refused(name: str) -> None:
    """Its class cannot be built or run without."""
    settings = {"architecture": "gemma2", "hidden_size": 16, "num_attention_heads": 2}
    read_model(settings | {"sliding_window": 8, "attn_logit_softcapping": 50.0})
    with raises_code(SpecError, "unsupported_value", match=f"{name}: is 0"):
        read_model({"sliding_window": 8, "attn_logit_softcapping": 50.0} | settings | {name: 0})
