"""Losses of each objective against short references, and units of chats and preferences."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.errors import raises_code
from kit.training import TEXT, rows_of, shard_of_rows, spec_of, unit_of

from training_gym.data.dataset import Split, one_shard, validation_samples
from training_gym.data.samples import IGNORED, collate
from training_gym.data.shards import Layout
from training_gym.evaluate.loss import mean_loss, validation_loss
from training_gym.evaluate.sums import LossSums
from training_gym.model.folder import write_folder
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.model.network import Base, Network, rows_on
from training_gym.spec.adapters import read_adapter
from training_gym.spec.architectures import ARCHITECTURES, read_model
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError, StateError
from training_gym.units.trace import Unit, check_result, state_path
from training_gym.units.unit import replay_segment, run_unit

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "sequence_length": 16}
STEPS = {"inner_steps": 6, "segment_steps": 3, "batch_size": 4, "warmup_steps": 0, "optimizer": "adamw"}
ROWS = [
    ([1, 2, 3, 4, 5], [0, 0, 1, 1, 1]),
    ([1, 2, 7, 8], [0, 0, 1, 1]),
    ([9] * 10 + [11, 12, 13], [0] * 10 + [1] * 3),
    ([9] * 10 + [4], [0] * 10 + [1]),
]
"""Two preferences or four conversations."""
CHAT, PREFERENCES = Layout("chat"), Layout("preferences")


def spec_for(architecture: str = "llama", **training: Any) -> TrainingSpec:
    windows = {"sliding_window": 4} if architecture in ("gemma2", "mistral") else {}
    return spec_of(read_model(SIZES | windows | {"architecture": architecture}), **STEPS | training)


def dpo_unit(adapted: bool, folder: Path) -> Unit:
    """Build a unit whose base is not the start of training."""
    spec = replace(spec_for(objective="dpo", learning_rate=1e-2), base="base")
    write_folder(spec.model, initial_parameters(replace(spec, adapter=None)), folder)
    if adapted:
        spec = replace(spec, adapter=read_adapter({"r": 4, "lora_dropout": 0.1}, spec.model))
    train = one_shard(spec, shard_of_rows(ROWS * 8), PREFERENCES, 16)
    return unit_of(spec, train=train, base={"model": folder / "model.safetensors"})


def base_and_policy(spec: TrainingSpec) -> tuple[Base, Arrays]:
    base = {name: torch.tensor(array) for name, array in initial_parameters(replace(spec, adapter=None)).items()}
    start = initial_parameters(spec)
    generator = torch.Generator().manual_seed(0)
    return base, {
        name: array + 0.05 * torch.randn(array.shape, generator=generator).numpy() for name, array in start.items()
    }


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_packed_documents_do_not_see_each_other(architecture: str) -> None:
    spec = spec_for(architecture)
    network = Network(spec, initial_parameters(spec), "cpu")
    text = bytes([5, 6, 7, 8, 9, 0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    packed = rows_on("cpu", collate(validation_samples(one_shard(spec, text, Layout(separator=0)), 1)))
    whole = network(packed, 1.0).item()
    alone = sum(network(rows_of([list(part)]), 1.0).item() for part in (text[:6], text[6:]))
    assert packed.terms == 15
    assert whole == pytest.approx(alone, rel=1e-5)
    assert whole != pytest.approx(network(rows_of([list(text)]), 1.0).item(), rel=1e-3)


def test_text_without_separator_needs_no_mask() -> None:
    spec = spec_for()
    for layout in (Layout(), Layout(separator=255)):
        batch = collate(validation_samples(one_shard(spec, TEXT, layout), 4))
        assert batch.positions is None
        assert batch.count == batch.inputs.size


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_sft_loss_is_mean_over_targets(architecture: str) -> None:
    spec = spec_for(architecture, objective="sft")
    parameters = initial_parameters(spec)
    split = one_shard(spec, shard_of_rows(ROWS), CHAT, len(ROWS))
    losses = []
    model = Network(replace(spec, training=replace(spec.training, objective="causal_lm")), parameters, "cpu").model
    for tokens, mask in ROWS:
        with torch.no_grad():
            logarithms = model(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1)
        losses += [-logarithms[place, tokens[place + 1]].item() for place in range(len(tokens) - 1) if mask[place + 1]]
    assert len(losses) == 9
    assert validation_loss(spec, parameters, split) == pytest.approx(sum(losses) / 9, rel=1e-5)


def test_sft_of_packed_turns_equals_definition() -> None:
    """The mean of -log p over the targets, from the definition: exponentials over their sum."""
    spec = spec_for(objective="sft")
    parameters = initial_parameters(spec)
    rows = [([3, 1, 4, 1, 5, 9], [0, 1, 1, 0, 0, 1]), ([2, 7, 1], [1, 1, 0])]  # turns of weight 0 have no target
    split = one_shard(spec, shard_of_rows(rows), CHAT, len(rows))
    model = Network(replace(spec, training=replace(spec.training, objective="causal_lm")), parameters, "cpu").model
    losses = []
    for tokens, mask in rows:
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([tokens])).logits[0].double().exp()
        for place, (token, is_target) in enumerate(zip(tokens, mask, strict=True)):
            if place and is_target:  # the first token has nothing before it
                losses.append(-torch.log(scores[place - 1, token] / scores[place - 1].sum()).item())
    assert len(losses) == 4
    batch = collate(validation_samples(split, 2))
    network = Network(spec, parameters, "cpu")
    found = network(rows_on("cpu", batch), batch.count).item()
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-5)


@pytest.mark.parametrize("adapted", [False, True])
def test_dpo_loss_equals_reference(adapted: bool) -> None:
    """The reference sums log-probabilities of plain models (Rafailov et al., 2023, equation 7)."""
    spec = replace(spec_for(objective="dpo", dpo_beta=0.3), base="base")
    if adapted:
        spec = replace(spec, adapter=read_adapter({"r": 4}, spec.model))
    base, policy = base_and_policy(spec)
    network = Network(spec, policy, "cpu", base)
    split = one_shard(spec, shard_of_rows(ROWS), PREFERENCES, 2)
    plain = Network(replace(spec_for(), base=None), {name: value.numpy() for name, value in base.items()}, "cpu").model

    def log_probability(model: Any, tokens: list[int], mask: list[int]) -> torch.Tensor:
        logarithms = model(input_ids=torch.tensor([tokens[:-1]])).logits[0].log_softmax(-1)
        return (logarithms.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0] * torch.tensor(mask[1:])).sum()

    losses = []
    for preferred, other in (ROWS[:2], ROWS[2:]):
        shift = [log_probability(network.model, *row) - log_probability(plain, *row) for row in (preferred, other)]
        losses.append(-torch.nn.functional.logsigmoid(0.3 * (shift[0] - shift[1])))
    expected = torch.stack(losses).mean()
    rows = rows_on("cpu", collate(validation_samples(split, 2)))
    found = network(rows, rows.terms)
    torch.testing.assert_close(found, expected)
    parameters = list(network.trained().values())
    for ours, theirs in zip(*(torch.autograd.grad(loss, parameters) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert mean_loss(spec, policy, validation_samples(split, 2), base=base) == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("adapted", [False, True])
def test_dpo_unit_learns_and_replays(adapted: bool, tmp_path: Path) -> None:
    unit, losses = dpo_unit(adapted, tmp_path), list[float]()
    unit = replace(unit, spec=replace(unit.spec, validation_samples=3, replicas=3), validation=unit.train)
    result = run_unit(unit, tmp_path, lambda step, loss: losses.append(loss))
    check_result(unit, result)
    for segment in range(unit.spec.segments):
        state = state_path(tmp_path, segment).read_bytes()
        assert replay_segment(unit, segment, result.leaves[segment], state) == result.leaves[segment + 1]
    evaluated = LossSums.from_bytes(result.evaluation)
    assert (evaluated.samples, evaluated.loss) == (3, pytest.approx(0.693147, abs=1e-5))
    assert losses[-1] < losses[0]
    assert losses[0] == pytest.approx(0.693147, abs=1e-5)  # the start is the reference


def test_micro_batches_add_sums_of_targets(tmp_path: Path) -> None:
    """Conversations have unequal numbers of targets, so a mean of means would differ."""
    spec, losses = spec_for(objective="sft", learning_rate=1e-2), []
    for size in (0, 1, 3):
        spec = replace(spec, training=replace(spec.training, micro_batch_size=size))
        unit = unit_of(spec, train=one_shard(spec, shard_of_rows(ROWS * 6), CHAT, 24))
        result = run_unit(unit, tmp_path)
        state = state_path(tmp_path, 1).read_bytes()
        assert replay_segment(unit, 1, result.leaves[1], state) == result.leaves[2]
        losses.append(result.train_loss)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-3)


def test_batch_without_target_changes_no_loss(tmp_path: Path) -> None:
    spec = spec_for(objective="sft")
    unit = unit_of(spec, train=one_shard(spec, shard_of_rows([([1, 2, 3], [0, 0, 0])] * 8), CHAT, 8))
    assert run_unit(unit, tmp_path).train_loss == 0


def test_long_row_is_cut_at_reading() -> None:
    spec = spec_for(objective="sft")
    (row,) = one_shard(spec, shard_of_rows([(list(range(40)), [0, 1] * 20)]), CHAT, 1).sample(0, 0)
    assert list(row.inputs) == list(range(16))
    assert list(row.targets) == [place + 1 if place % 2 == 0 else IGNORED for place in range(16)]


GOOD = shard_of_rows(ROWS)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (GOOD[:-1], "wrong_size"),
        (GOOD + b"\0", "wrong_size"),
        (b"\1" + GOOD[1:], "malformed"),
        (GOOD[:4] + b"\1" + GOOD[5:], "malformed"),
        (GOOD[:-1] + b"\xff", "malformed"),
    ],
)
def test_wrong_shard_file_is_refused(content: bytes, code: str) -> None:
    spec = spec_for(objective="sft")
    with raises_code(StateError, code):
        one_shard(spec, content, CHAT, len(ROWS))


def test_samples_of_another_kind_are_refused() -> None:
    for objective, layout in (("causal_lm", CHAT), ("sft", Layout()), ("dpo", CHAT)):
        with pytest.raises(ManifestError) as refusal:
            Split(spec_for(objective=objective), layout, [], {})
        assert (refusal.value.code, refusal.value.field) == ("wrong_kind", "data_config.dataset")
