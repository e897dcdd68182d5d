"""Chunks of payloads begin at tensors."""

import numpy as np

from training_gym.compress.payload_format import Format, decode_vector, encode_vector
from training_gym.spec.config import CHUNK

LAYOUT = bytes(range(32))


def test_small_values_beside_large_tensor_are_kept() -> None:
    """Scales and the choice of entries are a tensor's own."""
    dice = np.random.default_rng(4)
    small, large = 1e-4 * dice.standard_normal(64), dice.standard_normal(CHUNK)
    vector = np.concatenate([small, large, small]).astype(np.float32)
    for top_k in (CHUNK, 512):
        format_ = Format((64, CHUNK, 64), top_k, 2, LAYOUT)
        dense = decode_vector(format_, encode_vector(format_, vector)).dense()
        for part in (slice(0, 64), slice(64 + CHUNK, None)):
            assert np.linalg.norm(dense[part] - vector[part]) < 0.8 * np.linalg.norm(vector[part])
            assert np.abs(dense[part]).max() < 1e-3


def test_tensor_borders_cost_only_their_scales() -> None:
    """A payload of many small tensors is hardly longer than one of a single tensor."""
    sizes = (64, CHUNK, 64, 3 * CHUNK, 64, 20_000)
    for top_k in (64, 960, CHUNK):
        several, single = Format(sizes, top_k, 2, LAYOUT), Format((sum(sizes),), top_k, 2, LAYOUT)
        assert several.max_bytes - single.max_bytes <= 8 * len(sizes)
