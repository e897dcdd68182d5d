"""How much a node is told to send, and that whatever it was told can be joined."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.adaptation import SHARE, choose_top_k, decode_adapted, ladder, with_top_k
from training_gym.aggregation import aggregate
from training_gym.compression.wire import encode, payload_size, top_k_of
from training_gym.config import ModelConfig, TrainingConfig, TrainingSpec
from training_gym.errors import PayloadError
from training_gym.models.layout import initial_parameters

SPEC = TrainingSpec(
    ModelConfig(hidden_size=8, num_layers=1, num_heads=1, sequence_length=8), "unused", TrainingConfig(top_k=512)
)
VECTOR = np.random.default_rng(5).normal(0, 1e-3, SPEC.num_parameters()).astype(np.float32)


@given(st.integers(1, 10**9), st.floats(1e-3, 1e4))
def test_the_highest_rung_that_goes_up_in_its_share_of_the_time(rate: int, compute: float) -> None:
    rungs = ladder(SPEC)
    chosen = choose_top_k(SPEC, rate, compute)
    fits = [top_k for top_k in rungs if payload_size(with_top_k(SPEC, top_k)) / rate <= SHARE * compute * (1 + 1e-9)]
    assert chosen == max(fits, default=min(rungs))


def test_the_ladder_has_its_bounds() -> None:
    assert ladder(SPEC) == [512, 256, 128, 64]
    assert ladder(with_top_k(SPEC, 3)) == [3, 1]
    assert choose_top_k(SPEC, None, 4.0) == choose_top_k(SPEC, 10**9, None) == 512
    assert choose_top_k(SPEC, 1, 0.001) == 64


def test_without_error_feedback_nothing_is_left_out() -> None:
    spec = replace(SPEC, training=replace(SPEC.training, error_feedback_decay=0.0))
    assert choose_top_k(spec, 1, 0.001) == 512


def test_payloads_of_all_rungs_are_joined_and_others_refused() -> None:
    payloads = {place: encode(with_top_k(SPEC, top_k), VECTOR) for place, top_k in enumerate(ladder(SPEC))}
    assert [top_k_of(payload) for payload in payloads.values()] == ladder(SPEC)
    joined = aggregate(SPEC, initial_parameters(SPEC.model, 0), payloads)
    assert all(not verdict.code.startswith("malformed") for verdict in joined.verdicts.values())
    for strange in (511, 1024, 1):
        with pytest.raises(PayloadError):
            decode_adapted(SPEC, encode(with_top_k(SPEC, strange), VECTOR))
    for short in (b"", b"ZOPG"):
        with pytest.raises(PayloadError):
            decode_adapted(SPEC, short)
