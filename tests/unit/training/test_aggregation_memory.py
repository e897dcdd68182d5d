"""Peak memory of aggregations, and its estimate."""

from dataclasses import replace

import numpy as np
import pytest
from kit.measures import peak_bytes
from kit.training import spec_of

from training_gym.aggregate import aggregation
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.memory import aggregation_memory_bytes
from training_gym.aggregate.outer_step import OuterState, save_outer_state
from training_gym.compress.payload_format import decoded_bytes, encode, uplink
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import read_model
from training_gym.units.checkpoint import save_state

MAX_COPIES = 4
"""Copies next to the inputs (parameters and outer state) and one decoded batch."""
ESTIMATE_FACTOR = 2.0
MODEL = read_model({"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "sequence_length": 8})


def copied(state: OuterState) -> OuterState:
    return OuterState(state.aggregate.copy(), state.momentum.copy(), state.residual.copy())


@pytest.mark.parametrize(("top_k", "bits", "batch"), [(4096, 2, 6), (4096, 2, 2), (64, 4, 6), (4096, 8, 6)])
def test_aggregation_stays_within_copies_and_estimate(
    top_k: int, bits: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(MODEL, top_k=top_k, value_bits=bits, down_top_k=top_k, down_value_bits=bits)
    monkeypatch.setattr(aggregation, "MIN_BATCH", batch)
    monkeypatch.setattr(aggregation, "MAX_DECODED_BYTES", 1)
    size, noise = spec.num_parameters(), np.random.default_rng(0)
    start = initial_parameters(spec)
    payloads = {slot: encode(spec, noise.normal(0, 1e-3, size).astype(np.float32)) for slot in range(6)}
    state = aggregate(spec, start, payloads).outer_state  # compiles and imports all that it needs
    peak = peak_bytes(lambda: aggregate(spec, start, payloads, None, state, in_place=True))
    assert peak <= MAX_COPIES * 4 * size + batch * decoded_bytes(uplink(spec))
    files = sum(map(len, payloads.values()))
    estimate = aggregation_memory_bytes(spec, len(payloads))
    assert 4 * 4 * size + files + peak <= estimate <= ESTIMATE_FACTOR * (4 * 4 * size + files + peak)


@pytest.mark.parametrize("settings", [{}, {"down_top_k": 0}, {"outer_momentum": 0.0}], ids=str)
def test_aggregation_in_place_changes_no_bit(settings: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(replace(MODEL, num_hidden_layers=1), **settings)
    noise = np.random.default_rng(1)
    vectors = noise.normal(0, 1e-3, (5, spec.num_parameters())).astype(np.float32)
    payloads = {slot: encode(spec, vector) for slot, vector in enumerate(vectors)}
    first = aggregate(spec, initial_parameters(spec), payloads)
    for most in (aggregation.MAX_DECODED_BYTES, 1):  # one batch, several
        monkeypatch.setattr(aggregation, "MAX_DECODED_BYTES", most)
        monkeypatch.setattr(aggregation, "MIN_BATCH", 2)
        kept = copied(first.outer_state)
        apart = aggregate(spec, first.parameters, payloads, None, first.outer_state)
        place = aggregate(spec, first.parameters, payloads, None, kept, in_place=True)
        assert save_state(place.parameters) == save_state(apart.parameters)
        assert place.update == apart.update
        assert save_outer_state(spec, place.outer_state) == save_outer_state(spec, apart.outer_state)
        assert place.outer_state.aggregate is kept.aggregate
