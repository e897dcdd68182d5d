"""Text generation with a byte model."""

import torch

from training_gym.model.decoder import build_decoder
from training_gym.model.layout import Arrays
from training_gym.spec.config import ModelConfig


def generate(
    model: ModelConfig, parameters: Arrays, prompt: bytes, length: int, temperature: float = 0.8, seed: int = 0
) -> bytes:
    """Return ``length`` bytes after ``prompt``, sampled with ``seed``; deterministic.

    Args:
        model: the model's configuration.
        parameters: its parameters.
        prompt: at least one byte; the model sees its last ``sequence_length`` bytes.
        length: bytes to generate.
        temperature: above 0; lower is more predictable.
        seed: seed of the sampling.

    Raises:
        ValueError: empty prompt, negative length, or temperature not above 0.
    """
    if not prompt or length < 0 or not temperature > 0:
        raise ValueError("expected a prompt of at least one byte, length >= 0 and temperature > 0")
    decoder = build_decoder(model, parameters, "cpu")
    generator = torch.Generator().manual_seed(seed)
    text = list(prompt)
    with torch.no_grad():
        for _ in range(length):
            logits = decoder(torch.tensor([text[-model.sequence_length :]]))[0, -1]
            chances = torch.softmax(logits / temperature, -1)
            text.append(int(torch.multinomial(chances, 1, generator=generator)))
    return bytes(text[len(prompt) :])
