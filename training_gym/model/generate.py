"""Text generation with a job's model."""

from dataclasses import replace

import torch

from training_gym.model.layout import Arrays
from training_gym.model.network import Network
from training_gym.spec.config import TrainingSpec


def generate(
    spec: TrainingSpec,
    parameters: Arrays,
    prompt: list[int],
    length: int,
    temperature: float = 0.8,
    seed: int = 0,
    base: Arrays | None = None,
) -> list[int]:
    """Return ``length`` tokens after ``prompt``, sampled with ``seed``; deterministic.

    Args:
        spec: the job's specification.
        parameters: its trained parameters.
        prompt: at least one token; the model sees its last ``sequence_length`` tokens.
        length: tokens to generate.
        temperature: above 0; lower is more predictable.
        seed: seed of the sampling.
        base: the frozen base model's tensors; needed with an adapter only.

    Raises:
        ValueError: empty prompt, negative length, or temperature not above 0.
    """
    if not prompt or length < 0 or not temperature > 0:
        raise ValueError("expected a prompt of at least one token, length >= 0 and temperature > 0")
    plain = replace(spec, training=replace(spec.training, objective="causal_lm"))  # needs no reference
    frozen = None if base is None else {name: torch.from_numpy(values) for name, values in base.items()}
    network = Network(plain, parameters, "cpu", frozen).eval()
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt)
    with torch.no_grad(), network.precision():
        for _ in range(length):
            hidden = network.hidden(torch.tensor([tokens[-spec.model.sequence_length :]]))
            chances = torch.softmax(network.logits(hidden[0, -1]) / temperature, -1)
            tokens.append(int(torch.multinomial(chances, 1, generator=generator)))
    return tokens[len(prompt) :]
