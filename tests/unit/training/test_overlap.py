"""Deadlines of rounds, and the start of a unit before its replica's last aggregation."""

from dataclasses import replace

import numpy as np
import pytest
from kit.measures import peak_bytes

from market.training.deliveries.checks import _max_payload_bytes
from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.compress.link_adaptation import with_top_k
from training_gym.compress.payload_format import decode, encode, payload_size
from training_gym.exchange.deadlines import MAX_STALENESS, deadline, quorum, staleness_weight, start_slot_state
from training_gym.exchange.early_start import start_parameters
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import flatten
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import PayloadError, SpecError

SPEC = TrainingSpec.from_dict(
    {
        "model_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "sequence_length": 8},
        "data_config": {"dataset": "x" * 46},
        "training_config": {"round_delay": 1, "outer_learning_rate": 0.9, "outer_momentum": 0.5},
    }
)
START = initial_parameters(SPEC)
LEARNED = np.random.default_rng(1).normal(size=SPEC.num_parameters()).astype(np.float32)


def test_checkpoint_moves_as_by_immediate_outer_step() -> None:
    payload = encode(SPEC, LEARNED)
    moved, sent = flatten(start_parameters(SPEC, START, payload)), decode(SPEC, payload).dense()
    factor = np.float32(0.9 * 1.5)
    for found, before, by in zip(moved, flatten(START), sent, strict=True):
        assert found == np.float32(before - np.float32(factor * by))
    assert (moved != flatten(START)).sum() == np.count_nonzero(sent)


def test_start_without_payload_is_checkpoint() -> None:
    assert start_parameters(SPEC, START, None) is START


def test_payload_of_other_level_is_read_by_header() -> None:
    fewer = encode(with_top_k(SPEC, 120), LEARNED)
    moved = flatten(start_parameters(SPEC, START, fewer)) != flatten(START)
    assert 0 < moved.sum() < np.count_nonzero(decode(SPEC, encode(SPEC, LEARNED)).dense())


def test_non_finite_steps_are_undone() -> None:
    huge = np.full(SPEC.num_parameters(), 3e38, np.float32)
    assert np.isfinite(flatten(start_parameters(SPEC, START, encode(SPEC, huge)))).all()
    with pytest.raises(PayloadError):
        start_parameters(SPEC, START, b"no payload")


def test_dense_payload_positions_take_no_memory() -> None:
    """Positions would take 8 bytes an entry, twice the model itself."""
    wide = replace(SPEC, model=replace(SPEC.model, hidden_size=256))
    start = initial_parameters(wide)
    payload = encode(wide, np.ones(wide.num_parameters(), np.float32))
    start_parameters(wide, start, payload)
    assert peak_bytes(lambda: start_parameters(wide, start, payload)) < 14 * wide.num_parameters()


def test_round_delay_is_zero_or_one() -> None:
    assert TrainingSpec.from_dict(SPEC.to_dict() | {"training_config": {}}).training.round_delay == 0
    with pytest.raises(SpecError, match="round_delay"):
        TrainingSpec.from_dict(SPEC.to_dict() | {"training_config": {"round_delay": 2}})


@pytest.mark.parametrize("entries_per_chunk", [0, 4097, 65535])
def test_header_without_entry_count_is_refused(entries_per_chunk: int) -> None:
    payload = bytearray(encode(SPEC, LEARNED))
    payload[6:8] = entries_per_chunk.to_bytes(2, "little")
    if entries_per_chunk > 4096:  # as long as so many entries would take
        entries = SPEC.num_parameters() // 4096 * entries_per_chunk + SPEC.num_parameters() % 4096
        ones = np.packbits(np.ones(entries, np.uint8)).tobytes()  # levels, behind signs that are all positive
        payload = payload[:74] + bytes(len(ones)) + ones
    for start in (lambda data: start_parameters(SPEC, START, data), lambda data: start_slot_state(SPEC, None, data)):
        with pytest.raises(PayloadError) as refusal:
            start(bytes(payload))
        assert refusal.value.code in ("wrong_header", "wrong_size")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_market_reads_unit_start_of_any_entry_count(bits: int) -> None:
    of_job = replace(SPEC, training=replace(SPEC.training, value_bits=bits))
    largest = max(payload_size(with_top_k(of_job, top_k)) for top_k in range(1, 4097))
    assert _max_payload_bytes(with_top_k(of_job, 64)) == largest


def test_deadline_follows_arrivals_and_no_single_straggler() -> None:
    assert deadline([10, 11, 12, 13, 14]) == 12 + 3 * 1
    assert deadline([10, 11, 12, 13, 10_000]) == 12 + 3 * 1
    assert deadline([10.0] * 5) == 11.0
    assert deadline([10.0] * 5, min_slack_seconds=30.0) == 40.0
    with pytest.raises(ValueError):
        deadline([])


def test_quorum_is_two_thirds() -> None:
    assert [quorum(count) for count in (1, 2, 3, 4, 8, 9)] == [1, 2, 2, 3, 6, 6]


def test_late_payload_weight_falls_to_zero() -> None:
    weights = [staleness_weight(late) for late in range(MAX_STALENESS + 2)]
    assert weights[0] == WEIGHT_ONE
    assert weights[-1] == 0
    for late, weight in enumerate(weights[:-1]):
        assert weight == pytest.approx(WEIGHT_ONE / (1 + late) ** 0.5, abs=1)
    with pytest.raises(ValueError):
        staleness_weight(-1)
