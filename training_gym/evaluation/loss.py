"""Validation loss of a checkpoint."""

import torch

from training_gym.config import TrainingSpec
from training_gym.data.dataset import Tokens, validation_windows
from training_gym.models.decoder import build_decoder
from training_gym.models.layout import Arrays

MAX_WINDOWS = 256
WINDOWS_PER_BATCH = 32


def validation_loss(spec: TrainingSpec, parameters: Arrays, validation: Tokens, device: str = "cpu") -> float:
    """Mean cross-entropy per token, in nats, over at most ``MAX_WINDOWS`` windows spread over the split."""
    return mean_loss(spec, parameters, validation_windows(spec, validation, MAX_WINDOWS), device)


def mean_loss(spec: TrainingSpec, parameters: Arrays, tokens: Tokens, device: str = "cpu") -> float:
    """Mean cross-entropy per token, in nats, over these windows [W, sequence_length + 1]."""
    decoder = build_decoder(spec.model, parameters, device)
    windows = torch.from_numpy(tokens)
    total = 0.0
    with torch.no_grad():
        for batch in torch.split(windows, WINDOWS_PER_BATCH):
            total += decoder.loss(batch.to(device, torch.int64)).item() * len(batch)
    return total / len(windows)
