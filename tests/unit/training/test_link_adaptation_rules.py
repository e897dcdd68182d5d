"""Payload sizes that the market assigns by link, and the aggregation of each of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.training import spec_of

from benchmarks.codec import pseudo_gradient
from training_gym.aggregate.aggregation import aggregate
from training_gym.compress import link_adaptation
from training_gym.compress.link_adaptation import DIVISORS, choose_top_k, decode_adapted, top_k_levels, with_top_k
from training_gym.compress.payload_format import encode, payload_size, top_k_of
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import ModelConfig, read_model
from training_gym.spec.config import CHUNK
from training_gym.spec.errors import PayloadError
from training_gym.spec.methods import METHODS

SPEC = spec_of(top_k=512)
VECTOR = np.random.default_rng(5).normal(0, 1e-3, SPEC.num_parameters()).astype(np.float32)


@given(st.integers(1, 10**9), st.floats(1e-3, 1e4))
def test_highest_level_fitting_upload_time_is_chosen(rate: int, compute: float) -> None:
    rungs = top_k_levels(SPEC)
    chosen = choose_top_k(SPEC, rate, compute)
    longest = link_adaptation.SHARE * compute * (1 + 1e-9)
    fits = [top_k for top_k in rungs if payload_size(with_top_k(SPEC, top_k)) / rate <= longest]
    assert chosen == max(fits, default=min(rungs))


def test_compression_levels_have_bounds() -> None:
    assert top_k_levels(SPEC) == [512, 150, 16, 1]  # of so small a model the header counts
    assert top_k_levels(with_top_k(SPEC, 3)) == [3, 1]
    assert choose_top_k(SPEC, None, 4.0) == choose_top_k(SPEC, 10**9, None) == 512
    assert choose_top_k(SPEC, 1, 0.001) == 1


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("top_k", [CHUNK, 3000, 960, 64])
def test_level_has_most_entries_within_byte_share(top_k: int, bits: int) -> None:
    spec = spec_of(ModelConfig(), top_k=top_k, value_bits=bits)

    def size(entries: int) -> int:
        return payload_size(with_top_k(spec, entries))

    rungs = top_k_levels(spec)
    assert len(rungs) == 4
    for part, rung in zip(DIVISORS, rungs[1:], strict=True):
        assert size(rung) <= size(top_k) / part < size(rung + 1)


@pytest.mark.parametrize("method", ["default", "slow_links", "sparseloco"])
def test_each_lower_level_of_unit_is_smaller(method: str) -> None:
    learned, *_ = pseudo_gradient(0, quick=True)
    spec = spec_of(read_model({"hidden_size": 64, "num_hidden_layers": 2}), **METHODS[method])
    sizes = [len(encode(with_top_k(spec, top_k), learned)) for top_k in top_k_levels(spec)]
    assert top_k_levels(spec)[0] == spec.training.top_k
    assert [sizes[0] / size for size in sizes[1:]] == pytest.approx([2, 4, 8], rel=0.15)


def test_slow_node_sends_less_within_time_share() -> None:
    """3.3 million parameters in a minute: all entries need 2.2 Mb/s, an eighth 0.27 Mb/s."""
    spec = spec_of(read_model({"hidden_size": 256, "num_hidden_layers": 4}))
    full = payload_size(spec)
    for megabits, part in ((2.3, 1), (2.0, 2), (1.2, 2), (1.0, 4), (0.6, 4), (0.5, 8), (0.01, 8)):
        chosen = choose_top_k(spec, int(megabits * 125_000), 60.0)
        assert (chosen == CHUNK) is (part == 1)
        assert full / part * 0.98 < payload_size(with_top_k(spec, chosen)) <= full / part


def test_all_entries_are_sent_without_error_feedback() -> None:
    spec = replace(SPEC, training=replace(SPEC.training, error_feedback_decay=0.0))
    assert choose_top_k(spec, 1, 0.001) == 512


def test_payloads_of_allowed_levels_aggregate_others_refused() -> None:
    payloads = {place: encode(with_top_k(SPEC, top_k), VECTOR) for place, top_k in enumerate(top_k_levels(SPEC))}
    assert [top_k_of(payload) for payload in payloads.values()] == top_k_levels(SPEC)
    joined = aggregate(SPEC, initial_parameters(SPEC), payloads)
    assert all(not verdict.code.startswith("malformed") for verdict in joined.verdicts.values())
    for strange in (511, 1024, 2):
        with pytest.raises(PayloadError):
            decode_adapted(SPEC, encode(with_top_k(SPEC, strange), VECTOR))
    for short in (b"", b"ZOPG"):
        with pytest.raises(PayloadError):
            decode_adapted(SPEC, short)
