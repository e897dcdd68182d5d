import hashlib

import numpy as np
import pytest
import torch

from training_gym.checkpoint import initial_checkpoint, load_state
from training_gym.config import ModelConfig, TrainingConfig, TrainingSpec
from training_gym.distributed.optimizer import BETA1, BETA2, EPSILON, adamw_step
from training_gym.models.decoder import build_decoder
from training_gym.models.generate import generate
from training_gym.models.layout import initial_parameters, parameter_shapes

MODEL = ModelConfig(hidden_size=16, num_layers=2, num_heads=2, sequence_length=12)


def test_the_layout_names_the_networks_parameters() -> None:
    decoder = build_decoder(MODEL, initial_parameters(MODEL, 0), "cpu")
    shapes = {name: tuple(value.shape) for name, value in decoder.state_dict().items()}
    assert shapes == parameter_shapes(MODEL)
    assert list(parameter_shapes(MODEL)) == sorted(shapes)


def test_the_initial_checkpoint_is_the_same_on_every_machine() -> None:
    spec = TrainingSpec(MODEL, "unused", TrainingConfig(seed=7))
    data = initial_checkpoint(spec)
    assert hashlib.sha256(data).hexdigest() == "9a258ba19281eee0e3c0436a2b28141cb61378eb7727646d01ec61c26a626fa9"
    assert initial_checkpoint(TrainingSpec(MODEL, "unused", TrainingConfig(seed=8))) != data
    loss = build_decoder(MODEL, load_state(spec, data), "cpu").loss(torch.arange(130).reshape(10, 13))
    assert loss.item() == pytest.approx(np.log(256), abs=0.1)


def test_a_token_is_predicted_from_those_before_it_only() -> None:
    decoder = build_decoder(MODEL, initial_parameters(MODEL, 0), "cpu")
    tokens = torch.arange(12)[None]
    changed = tokens.clone()
    changed[0, 7] = 99
    with torch.no_grad():
        before, after = decoder(tokens)[0], decoder(changed)[0]
    assert torch.equal(before[:7], after[:7])
    assert not torch.allclose(before[7:], after[7:])


def test_the_inner_optimiser_is_adamw() -> None:
    torch.manual_seed(0)
    ours = {"matrix": torch.randn(4, 3, requires_grad=True), "gain": torch.randn(3, requires_grad=True)}
    theirs = {name: value.detach().clone().requires_grad_() for name, value in ours.items()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in ours.items()}
    groups = [{"params": [theirs["matrix"]], "weight_decay": 0.1}, {"params": [theirs["gain"]], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(BETA1, BETA2), eps=EPSILON)
    for step in range(5):
        for name, value in ours.items():
            value.grad = torch.randn_like(value)
            theirs[name].grad = value.grad.clone()
        adamw_step(ours, moments, step, 0.01, 0.1)
        reference.step()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-6, atol=1e-7)


def test_generated_text_follows_from_the_seed() -> None:
    parameters = initial_parameters(MODEL, 0)
    text = generate(MODEL, parameters, b"prompt longer than the model sees", 20, seed=1)
    assert len(text) == 20
    assert generate(MODEL, parameters, b"prompt longer than the model sees", 20, seed=1) == text
    assert generate(MODEL, parameters, b"prompt longer than the model sees", 20, seed=2) != text
    with pytest.raises(ValueError, match="prompt"):
        generate(MODEL, parameters, b"", 20)
