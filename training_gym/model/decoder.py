"""Small GPT-like decoder: pre-norm, rotary positions, GELU, no biases, untied head.

Shape legend: B batch, T positions, D hidden_size, N heads, K = D / N head size, V vocab_size.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training_gym.model.layout import Arrays
from training_gym.spec.config import ModelConfig


class Decoder(nn.Module):
    """Network from tokens [B, T] to next-token logits [B, T, V]."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(model.vocab_size, model.hidden_size)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model.num_layers))
        self.norm = nn.RMSNorm(model.hidden_size, eps=1e-6)
        self.head = nn.Linear(model.hidden_size, model.vocab_size, bias=False)
        rotation = rotary_table(model.sequence_length, model.hidden_size // model.num_heads)
        self.register_buffer("rotation", rotation, persistent=False)  # [2, T, K/2]

    def forward(self, tokens: Tensor) -> Tensor:
        rotation = cast(Tensor, self.rotation)[:, : tokens.shape[1]]
        hidden = self.embedding(tokens)  # [B, T, D]
        for block in self.blocks:
            hidden = block(hidden, rotation)
        return cast(Tensor, self.head(self.norm(hidden)))

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy, in nats, of each token of [B, T + 1] given those before it."""
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer of four widths, with residuals."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        width = model.hidden_size
        self.num_heads = model.num_heads
        self.attention_norm = nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_output = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-6)
        self.mlp_up = nn.Linear(width, 4 * width, bias=False)
        self.mlp_down = nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor, rotation: Tensor) -> Tensor:
        hidden = hidden + self.attend(self.attention_norm(hidden), rotation)
        return hidden + cast(Tensor, self.mlp_down(F.gelu(self.mlp_up(self.mlp_norm(hidden)))))

    def attend(self, hidden: Tensor, rotation: Tensor) -> Tensor:
        """Compute causal attention by matrix products, deterministic on every device."""
        batch, length, width = hidden.shape
        heads = self.qkv(hidden).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)  # [3, B, N, T, K]
        query, key, value = rotate(heads[0], rotation), rotate(heads[1], rotation), heads[2]
        scores = query @ key.transpose(-1, -2) * key.shape[-1] ** -0.5  # [B, N, T, T]
        future = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value  # [B, N, T, K]
        return cast(Tensor, self.attention_output(mixed.transpose(1, 2).reshape(batch, length, width)))


def rotary_table(length: int, head_size: int) -> Tensor:
    """Return cosines and sines [2, T, K/2]; frequencies fall from 1 to 1/10000."""
    frequency = 10_000.0 ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.stack((angle.cos(), angle.sin())).float()


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotate each pair (i, i + K/2) of [B, N, T, K] by its position's angle."""
    cos, sin = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def build_decoder(model: ModelConfig, parameters: Arrays, device: str) -> Decoder:
    """Return the network on ``device`` with a copy of ``parameters``."""
    decoder = Decoder(model)
    decoder.load_state_dict({name: torch.from_numpy(array) for name, array in parameters.items()})
    return decoder.to(device)
