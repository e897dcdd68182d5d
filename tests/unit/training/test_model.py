"""Networks of each architecture, their layout, optimisers and generation."""

import hashlib
import math

import numpy as np
import pytest
import torch
from kit.training import rows_of

from training_gym.data.dataset import one_shard, validation_samples
from training_gym.data.samples import collate
from training_gym.evaluate.loss import MAX_VALUES, WINDOWS_PER_BATCH, mean_loss, windows_per_batch
from training_gym.model import network as network_module
from training_gym.model.generate import generate
from training_gym.model.layout import initial_parameters, moment_names, parameter_shapes
from training_gym.model.network import Network, Rows, rows_on
from training_gym.optimise import inner
from training_gym.optimise.inner import BETA1, BETA2, EPSILON, muon_batches, optimizer_step, orthogonalised
from training_gym.spec.adapters import read_adapter
from training_gym.spec.architectures import ARCHITECTURES, ModelConfig, Tensor, read_model
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.checkpoint import initial_checkpoint, load_state

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "sequence_length": 12}
MODEL = read_model(SIZES)
SPEC = TrainingSpec(MODEL, "unused", TrainingConfig())
ROWS = rows_of(np.arange(130).reshape(10, 13))
ARCHITECTURE = pytest.mark.parametrize("architecture", list(ARCHITECTURES))


def spec_of(architecture: str, adapted: bool = False, **training: object) -> TrainingSpec:
    grouped = {} if architecture == "gpt2" else {"num_key_value_heads": 1}
    model = read_model(SIZES | grouped | {"architecture": architecture})
    adapter = read_adapter({"r": 4}, model) if adapted else None
    return TrainingSpec(model, "unused", TrainingConfig(**training), base="b" if adapted else None, adapter=adapter)


def base_of(architecture: str) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array) for name, array in initial_parameters(spec_of(architecture)).items()}


@ARCHITECTURE
@pytest.mark.parametrize("adapted", [False, True])
def test_layout_names_trained_parameters(architecture: str, adapted: bool) -> None:
    spec = spec_of(architecture, adapted)
    network = Network(spec, initial_parameters(spec), "cpu", base_of(architecture))
    assert {name: tuple(value.shape) for name, value in network.trained().items()} == parameter_shapes(spec)
    assert list(parameter_shapes(spec)) == sorted(parameter_shapes(spec))
    assert spec.num_parameters() == sum(value.numel() for value in network.trained().values())


@ARCHITECTURE
def test_fresh_model_predicts_almost_uniformly(architecture: str) -> None:
    spec = spec_of(architecture)
    assert Network(spec, initial_parameters(spec), "cpu")(ROWS, ROWS.terms).item() == pytest.approx(
        np.log(256), abs=0.6
    )


@ARCHITECTURE
def test_fresh_adapter_equals_its_base(architecture: str) -> None:
    base, adapted = spec_of(architecture), spec_of(architecture, adapted=True)
    network = Network(adapted, initial_parameters(adapted), "cpu", base_of(architecture))
    assert torch.equal(network(ROWS, ROWS.terms), Network(base, initial_parameters(base), "cpu")(ROWS, ROWS.terms))


@ARCHITECTURE
@pytest.mark.parametrize("adapted", [False, True])
def test_loss_in_parts_has_equal_gradients(architecture: str, adapted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary too large for one table of logits changes no more than the order of sums."""
    spec, found = spec_of(architecture, adapted), []
    for logits in (1 << 24, 7 * 256):
        monkeypatch.setattr(network_module, "MAX_LOGITS", logits)
        network = Network(spec, initial_parameters(spec), "cpu", base_of(architecture))
        loss = network(ROWS, ROWS.terms)
        loss.backward()
        found.append([loss, *(value.grad for _, value in sorted(network.trained().items()))])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)


def test_initial_checkpoint_is_equal_on_every_machine() -> None:
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(seed=7))
    data = initial_checkpoint(spec)
    assert hashlib.sha256(data).hexdigest() == "d927460d3581642131b8d6313ec689806d85ab39d406afc64c3c54b564df1a12"
    assert initial_checkpoint(TrainingSpec(MODEL, "unused", TrainingConfig(seed=8))) != data
    assert load_state(spec, data).keys() == parameter_shapes(spec).keys()


@ARCHITECTURE
def test_token_prediction_depends_only_on_earlier_tokens(architecture: str) -> None:
    spec = spec_of(architecture)
    network = Network(spec, initial_parameters(spec), "cpu").eval()
    tokens = torch.arange(12)[None]
    changed = tokens.clone()
    changed[0, 7] = 99
    with torch.no_grad():
        before, after = network.hidden(tokens)[0], network.hidden(changed)[0]
    assert torch.equal(before[:7], after[:7])
    assert not torch.allclose(before[7:], after[7:])


TABLE, GAIN = Tensor("matrix", (4, 3), "matrix", 1.0), Tensor("gain", (3,), "gain", 1.0)


def test_inner_optimiser_is_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(optimizer="adamw", learning_rate=0.02, weight_decay=0.1))
    monkeypatch.setattr(TrainingSpec, "trained_tensors", lambda _: (TABLE, GAIN))
    ours = {"matrix": torch.randn(4, 3, requires_grad=True), "gain": torch.randn(3, requires_grad=True)}
    theirs = {name: value.detach().clone().requires_grad_() for name, value in ours.items()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in ours.items()}
    groups = [{"params": [theirs["matrix"]], "weight_decay": 0.1}, {"params": [theirs["gain"]], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(BETA1, BETA2), eps=EPSILON)
    for step in range(5):
        for name, value in ours.items():
            value.grad = torch.randn_like(value)
            theirs[name].grad = value.grad.clone()
        optimizer_step(spec, ours, moments, step, 0.5)
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


@pytest.mark.parametrize("shape", [(32, 32), (96, 32), (24, 80)])
def test_matrix_has_same_bits_in_batch(shape: tuple[int, int]) -> None:
    matrices = torch.randn((5, *shape), generator=torch.Generator().manual_seed(0))
    together = orthogonalised(matrices)
    for matrix, found in zip(matrices, together, strict=True):
        assert torch.equal(orthogonalised(matrix), found)


def test_muon_takes_matrices_of_one_shape_together() -> None:
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(optimizer="muon"))
    matrices = {one for one in spec.trained_tensors() if one.role == "matrix"}
    values = 3 * math.prod(max(one.shape for one in matrices))
    batches = list(muon_batches(spec, values))
    assert {one for batch in batches for one in batch} == matrices
    assert sum(map(len, batches)) == len(matrices)
    assert all(len({one.shape for one in batch}) == 1 for batch in batches)
    assert max(map(len, batches)) > 1
    assert all(len(batch) * math.prod(batch[0].shape) <= values for batch in batches)
    assert {len(batch) for batch in muon_batches(spec, 1)} == {1}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_uses_tf32_only_in_bfloat16_jobs(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matmul, during = torch.backends.cuda.matmul, []
    honest = inner.orthogonalised

    def watched(matrices: torch.Tensor) -> torch.Tensor:
        during.append(matmul.allow_tf32)
        return honest(matrices)

    monkeypatch.setattr(inner, "orthogonalised", watched)
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(optimizer="muon", precision=precision))
    ours = {name: torch.zeros(shape, requires_grad=True) for name, shape in parameter_shapes(spec).items()}
    for value in ours.values():
        value.grad = torch.ones_like(value)
    moments = {
        one.name: tuple(torch.zeros(one.shape) for _ in moment_names(spec.training, one))
        for one in spec.trained_tensors()
    }
    before = matmul.allow_tf32
    optimizer_step(spec, ours, moments, 0, 1.0)
    assert set(during) == {precision == "bfloat16"}
    assert matmul.allow_tf32 == before


@pytest.mark.parametrize("values", [1, inner.GPU_BATCH])
def test_muon_orthogonalises_only_hidden_matrices(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner, "muon_batches", lambda spec, _: muon_batches(spec, values))
    settings = {"optimizer": "muon", "muon_learning_rate": 0.1, "learning_rate": 0.01, "weight_decay": 0.0}
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(**settings))
    generator = torch.Generator().manual_seed(1)
    hidden = {one.name: one.shape for one in spec.trained_tensors() if one.role == "matrix"}
    ours = {name: torch.zeros(shape, requires_grad=True) for name, shape in parameter_shapes(spec).items()}
    kept = {one.name: moment_names(spec.training, one) for one in spec.trained_tensors()}
    assert {name for name, names in kept.items() if len(names) == 1} == set(hidden)
    moments = {name: tuple(torch.zeros_like(ours[name]) for _ in names) for name, names in kept.items()}
    buffers = {name: torch.zeros(shape) for name, shape in hidden.items()}
    expected = {name: torch.zeros(shape) for name, shape in hidden.items()}
    for step in range(3):
        for name, value in ours.items():
            value.grad = torch.randn(value.shape, generator=generator)
            if name in hidden:
                buffers[name] = 0.95 * buffers[name] + 0.05 * value.grad
                direction = 0.05 * value.grad + 0.95 * buffers[name]
                scale = max(1.0, value.shape[0] / value.shape[1]) ** 0.5
                expected[name] -= 0.1 * scale * orthogonalised(direction)
        optimizer_step(spec, ours, moments, step, 1.0)
    for name, matrix in expected.items():
        torch.testing.assert_close(ours[name].detach(), matrix, rtol=1e-4, atol=1e-5)
    assert ours["lm_head.weight"].abs().max() < 0.031  # three AdamW steps of at most 0.01


def test_generated_tokens_follow_from_seed() -> None:
    parameters, prompt = initial_parameters(SPEC), list(b"prompt longer than the model sees")
    tokens = generate(SPEC, parameters, prompt, 20, seed=1)
    assert len(tokens) == 20
    assert generate(SPEC, parameters, prompt, 20, seed=1) == tokens
    assert generate(SPEC, parameters, prompt, 20, seed=2) != tokens
    with pytest.raises(ValueError, match="prompt"):
        generate(SPEC, parameters, [], 20)


def test_evaluation_batches_windows_by_score_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 windows of 64 heads of 2,048 positions would take 34 GB for one layer's scores."""
    assert windows_per_batch(ModelConfig()) == WINDOWS_PER_BATCH
    for model in (
        read_model({"num_attention_heads": 64, "sequence_length": 2048}),
        read_model({"hidden_size": 2048, "sequence_length": 2048}),
    ):
        values = max(model.num_attention_heads * model.sequence_length, model.intermediate_size) * model.sequence_length
        assert windows_per_batch(model) == max(1, MAX_VALUES // values)
    model = read_model({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 400})
    spec, seen, true = TrainingSpec(model, "unused", TrainingConfig()), [], Network.forward
    monkeypatch.setattr("training_gym.evaluate.loss.MAX_VALUES", 3 * 2 * 400**2)

    def loss(network: Network, rows: Rows, total: float) -> torch.Tensor:
        seen.append(len(rows.inputs))
        return true(network, rows, total)

    split = one_shard(spec, np.random.default_rng(0).bytes(7 * 400 + 1))
    windows = validation_samples(split, 7)
    parameters = initial_parameters(spec)
    with monkeypatch.context() as patched:
        patched.setattr(Network, "forward", loss)
        found = mean_loss(spec, parameters, windows)
    assert seen == [3, 3, 1]
    rows = rows_on("cpu", collate(windows))
    assert found == pytest.approx(Network(spec, parameters, "cpu")(rows, rows.terms).item())
