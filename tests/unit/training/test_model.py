import hashlib

import numpy as np
import pytest
import torch

from training_gym.evaluate.loss import MAX_VALUES, WINDOWS_PER_BATCH, mean_loss, windows_per_batch
from training_gym.model.decoder import Decoder, build_decoder
from training_gym.model.generate import generate
from training_gym.model.layout import initial_parameters, moment_names, parameter_shapes
from training_gym.optimise.inner import BETA1, BETA2, EPSILON, optimizer_step, orthogonalised
from training_gym.spec.config import ModelConfig, TrainingConfig, TrainingSpec
from training_gym.units.checkpoint import initial_checkpoint, load_state

MODEL = ModelConfig(hidden_size=16, num_layers=2, num_heads=2, sequence_length=12)


def test_layout_names_model_parameters() -> None:
    decoder = build_decoder(MODEL, initial_parameters(MODEL, 0), "cpu")
    shapes = {name: tuple(value.shape) for name, value in decoder.state_dict().items()}
    assert shapes == parameter_shapes(MODEL)
    assert list(parameter_shapes(MODEL)) == sorted(shapes)


def test_initial_checkpoint_is_equal_on_every_machine() -> None:
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(seed=7))
    data = initial_checkpoint(spec)
    assert hashlib.sha256(data).hexdigest() == "9a258ba19281eee0e3c0436a2b28141cb61378eb7727646d01ec61c26a626fa9"
    assert initial_checkpoint(TrainingSpec(MODEL, "unused", TrainingConfig(seed=8))) != data
    loss = build_decoder(MODEL, load_state(spec, data), "cpu").loss(torch.arange(130).reshape(10, 13))
    assert loss.item() == pytest.approx(np.log(256), abs=0.1)


def test_token_prediction_depends_only_on_earlier_tokens() -> None:
    decoder = build_decoder(MODEL, initial_parameters(MODEL, 0), "cpu")
    tokens = torch.arange(12)[None]
    changed = tokens.clone()
    changed[0, 7] = 99
    with torch.no_grad():
        before, after = decoder(tokens)[0], decoder(changed)[0]
    assert torch.equal(before[:7], after[:7])
    assert not torch.allclose(before[7:], after[7:])


def test_inner_optimiser_is_adamw() -> None:
    torch.manual_seed(0)
    ours = {"matrix": torch.randn(4, 3, requires_grad=True), "gain": torch.randn(3, requires_grad=True)}
    theirs = {name: value.detach().clone().requires_grad_() for name, value in ours.items()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in ours.items()}
    groups = [{"params": [theirs["matrix"]], "weight_decay": 0.1}, {"params": [theirs["gain"]], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(BETA1, BETA2), eps=EPSILON)
    training = TrainingConfig(learning_rate=0.02, weight_decay=0.1)
    for step in range(5):
        for name, value in ours.items():
            value.grad = torch.randn_like(value)
            theirs[name].grad = value.grad.clone()
        optimizer_step(training, ours, moments, step, 0.5)
        reference.step()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 64)])
def test_orthogonalisation_keeps_singular_vectors_and_equalises_values(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    core = left.T @ orthogonalised(matrix) @ right.T
    values = core.diagonal()
    assert (core - torch.diag(values)).abs().max() < 1e-4
    assert 0.6 < values.min() <= values.max() < 1.3


def test_muon_orthogonalises_only_hidden_matrices() -> None:
    training = TrainingConfig(optimizer="muon", muon_learning_rate=0.1, learning_rate=0.01, weight_decay=0.0)
    generator = torch.Generator().manual_seed(1)
    shapes = {"blocks.0.qkv.weight": (12, 4), "blocks.0.mlp_down.weight": (4, 16), "head.weight": (8, 4)}
    ours = {name: torch.zeros(shape, requires_grad=True) for name, shape in shapes.items()}
    moments = {name: tuple(torch.zeros(shapes[name]) for _ in moment_names(training, name, 2)) for name in shapes}
    assert [len(kept) for kept in moments.values()] == [1, 1, 2]
    buffers = {name: torch.zeros(shapes[name]) for name in shapes}
    expected = {name: torch.zeros(shapes[name]) for name in shapes}
    for step in range(3):
        for name, value in ours.items():
            value.grad = torch.randn(shapes[name], generator=generator)
            buffers[name] = 0.95 * buffers[name] + 0.05 * value.grad
            direction = 0.05 * value.grad + 0.95 * buffers[name]
            parts = direction.split(4) if "qkv" in name else [direction]  # query, key and value on their own
            expected[name] -= 0.1 * torch.cat([orthogonalised(part) for part in parts])
        optimizer_step(training, ours, moments, step, 1.0)
    for name in ("blocks.0.qkv.weight", "blocks.0.mlp_down.weight"):
        torch.testing.assert_close(ours[name].detach(), expected[name], rtol=1e-4, atol=1e-5)
    assert ours["head.weight"].abs().max() < 0.031  # three AdamW steps of at most 0.01


def test_generated_text_follows_from_seed() -> None:
    parameters = initial_parameters(MODEL, 0)
    text = generate(MODEL, parameters, b"prompt longer than the model sees", 20, seed=1)
    assert len(text) == 20
    assert generate(MODEL, parameters, b"prompt longer than the model sees", 20, seed=1) == text
    assert generate(MODEL, parameters, b"prompt longer than the model sees", 20, seed=2) != text
    with pytest.raises(ValueError, match="prompt"):
        generate(MODEL, parameters, b"", 20)


def test_evaluation_batches_windows_by_score_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 windows of 64 heads of 2,048 positions would take 34 GB for one layer's scores."""
    assert windows_per_batch(ModelConfig()) == WINDOWS_PER_BATCH
    for model in (ModelConfig(num_heads=64, sequence_length=2048), ModelConfig(hidden_size=2048, sequence_length=2048)):
        values = max(model.num_heads * model.sequence_length, 4 * model.hidden_size) * model.sequence_length
        assert windows_per_batch(model) == max(1, MAX_VALUES // values)
    model = ModelConfig(hidden_size=8, num_layers=1, num_heads=2, sequence_length=400)
    spec, seen, true = TrainingSpec(model, "unused", TrainingConfig()), [], Decoder.loss
    monkeypatch.setattr("training_gym.evaluate.loss.MAX_VALUES", 3 * 2 * 400**2)

    def loss(decoder: Decoder, tokens: torch.Tensor) -> torch.Tensor:
        seen.append(len(tokens))
        return true(decoder, tokens)

    windows = np.random.default_rng(0).integers(0, 256, (7, 401)).astype(np.uint8)
    parameters = initial_parameters(model, 0)
    with monkeypatch.context() as patched:
        patched.setattr(Decoder, "loss", loss)
        found = mean_loss(spec, parameters, windows)
    assert seen == [3, 3, 1]
    assert found == pytest.approx(build_decoder(model, parameters, "cpu").loss(torch.from_numpy(windows).long()).item())
