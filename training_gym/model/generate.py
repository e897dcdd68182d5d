"""Text generation with a job's model."""

import math
import time
from dataclasses import replace
from typing import NamedTuple

import torch

from training_gym.data.text_tokenizer import TextTokenizer
from training_gym.model.layout import Arrays, NamedArrays
from training_gym.model.network import Network
from training_gym.spec.config import TrainingSpec

_NOT_A_BYTE = 0xFF  # never part of UTF-8; it becomes a replacement character


class Continuation(NamedTuple):
    """Text after a prompt, and its number of tokens."""

    text: str
    tokens: int


def continue_text(
    spec: TrainingSpec,
    parameters: NamedArrays,
    tokenizer: TextTokenizer | None,
    prompt: str,
    length: int,
    temperature: float = 0.8,
    seed: int = 0,
    base: Arrays | None = None,
    until: float = math.inf,
) -> Continuation:
    """Return the text after ``prompt``; without a ``tokenizer`` the tokens are bytes.

    Args: as of :func:`generate`.

    Raises:
        ValueError: see :func:`generate`; a prompt can have no token.
    """
    given = list(prompt.encode()) if tokenizer is None else tokenizer.encode([prompt])[0]
    tokens = generate(spec, parameters, given, length, temperature, seed, base, until)
    if tokenizer is not None:
        return Continuation(tokenizer.decode(tokens), len(tokens))
    content = bytes(min(token, _NOT_A_BYTE) for token in tokens)
    return Continuation(content.decode(errors="replace"), len(tokens))


def generate(
    spec: TrainingSpec,
    parameters: NamedArrays,
    prompt: list[int],
    length: int,
    temperature: float = 0.8,
    seed: int = 0,
    base: Arrays | None = None,
    until: float = math.inf,
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
        until: ``monotonic`` time at which the generation stops early.

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
            if time.monotonic() >= until:
                break
            hidden = network.hidden(torch.tensor([tokens[-spec.model.sequence_length :]]))
            chances = torch.softmax(network.logits(hidden[0, -1]) / temperature, -1)
            tokens.append(int(torch.multinomial(chances, 1, generator=generator)))
    return tokens[len(prompt) :]
