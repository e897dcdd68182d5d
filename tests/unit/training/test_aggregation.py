import numpy as np
import pytest
from kit.errors import raises_code
from kit.measures import peak_bytes
from kit.training import spec_of

from training_gym.aggregate import aggregation
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import initial_outer_state, load_outer_state, save_outer_state
from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.compress.payload_format import decode, encode
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import flatten
from training_gym.spec.architectures import read_model
from training_gym.spec.errors import StateError

SPEC = spec_of(top_k=512, value_bits=8, outer_learning_rate=0.5, outer_momentum=0.0, down_top_k=0)
PARAMETERS = initial_parameters(SPEC)


def payload(seed: int, norm: float = 1.0) -> bytes:
    vector = np.random.default_rng(seed).standard_normal(SPEC.num_parameters())
    return encode(SPEC, (vector * norm / np.linalg.norm(vector)).astype(np.float32))


def test_outer_step_takes_weighted_mean_of_clipped_payloads() -> None:
    payloads = {0: payload(0), 1: payload(1, 1.2), 2: payload(2, 2.0)}
    weights = {0: 1024, 1: 2048, 2: 3072}
    dense = {slot: decode(SPEC, data).dense().astype(np.float64) for slot, data in payloads.items()}
    limit = np.median([np.linalg.norm(vector) for vector in dense.values()])
    clipped = {slot: vector * min(1.0, limit / np.linalg.norm(vector)) for slot, vector in dense.items()}
    mean = sum(clipped[slot] * weight for slot, weight in weights.items()) / 6144
    result = aggregate(SPEC, PARAMETERS, payloads, weights)
    np.testing.assert_allclose(flatten(result.parameters), flatten(PARAMETERS) - 0.5 * mean, atol=1e-7)
    assert all(verdict.included for verdict in result.verdicts.values())


def test_arrival_order_changes_no_bit() -> None:
    payloads = {slot: payload(slot, 1 + slot / 10) for slot in range(5)}
    one = aggregate(SPEC, PARAMETERS, payloads)
    other = aggregate(SPEC, PARAMETERS, dict(reversed(payloads.items())))
    assert flatten(one.parameters).tobytes() == flatten(other.parameters).tobytes()
    assert list(other.verdicts) == [0, 1, 2, 3, 4]


def test_batches_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = {slot: payload(slot, 1 + slot / 10) for slot in range(7)} | {7: b"junk", 8: payload(8, 50.0)}
    weights = {slot: WEIGHT_ONE - slot for slot in payloads}
    start = aggregate(SPEC, PARAMETERS, {0: payload(9)}).outer_state
    whole = aggregate(SPEC, PARAMETERS, payloads, weights, start)
    monkeypatch.setattr(aggregation, "MAX_DECODED_BYTES", 1)
    monkeypatch.setattr(aggregation, "MIN_BATCH", 2)
    assert [len(batch) for batch in aggregation.batches(SPEC, payloads)] == [2, 2, 2, 2, 1]
    parts = aggregate(SPEC, PARAMETERS, payloads, weights, start)
    assert flatten(parts.parameters).tobytes() == flatten(whole.parameters).tobytes()
    assert parts.outer_state.aggregate.tobytes() == whole.outer_state.aggregate.tobytes()
    assert (parts.verdicts, parts.update) == (whole.verdicts, whole.update)
    with pytest.raises(ValueError, match="weights from 1"):
        aggregate(SPEC, PARAMETERS, payloads, dict.fromkeys(payloads, 0))


def test_last_aggregate_beyond_payloads_is_refused() -> None:
    state = initial_outer_state(SPEC)
    state.aggregate[7] = -64.0
    load_outer_state(SPEC, save_outer_state(SPEC, state))
    state.aggregate[7] = -64.01
    with raises_code(StateError, "out_of_range", match="aggregate has a value beyond 64"):
        load_outer_state(SPEC, save_outer_state(SPEC, state))


def test_memory_of_round_does_not_grow_with_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "MAX_DECODED_BYTES", 1)
    wide = spec_of(read_model({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}), top_k=4096)
    start, size = initial_parameters(wide), wide.num_parameters()
    noise = np.random.default_rng(0)
    payloads = {slot: encode(wide, noise.normal(0, 1e-3, size).astype(np.float32)) for slot in range(24)}
    aggregate(wide, start, {0: payloads[0]})  # compiles
    six = {slot: payloads[slot] for slot in range(6)}
    few, many = peak_bytes(lambda: aggregate(wide, start, six)), peak_bytes(lambda: aggregate(wide, start, payloads))
    assert many < few + 4 * size  # 18 more payloads, each of one byte a value


def test_malformed_or_disproportionate_payload_is_excluded_with_reason() -> None:
    good = {slot: payload(slot) for slot in range(3)}
    bad = {3: b"", 4: good[0][:66] + b"\xff" * (len(good[0]) - 66), 5: payload(5, 50.0), 6: payload(6, 1e6)}
    result = aggregate(SPEC, PARAMETERS, {**good, **bad})
    codes = {slot: verdict.code for slot, verdict in result.verdicts.items()}
    assert codes == {
        **dict.fromkeys(good, "included"),
        3: "malformed_wrong_size",
        4: "malformed_wrong_scale",
        5: "norm_outlier",
        6: "out_of_range",
    }
    alone = aggregate(SPEC, PARAMETERS, good)
    assert flatten(result.parameters).tobytes() == flatten(alone.parameters).tobytes()


def test_round_without_usable_payload_changes_nothing() -> None:
    for payloads in ({}, {0: b"junk"}):
        result = aggregate(SPEC, PARAMETERS, payloads)
        assert flatten(result.parameters).tobytes() == flatten(PARAMETERS).tobytes()


def test_payloads_of_zeros_change_no_parameter() -> None:
    zero = encode(SPEC, np.zeros(SPEC.num_parameters(), np.float32))
    result = aggregate(SPEC, PARAMETERS, {0: zero, 1: zero})
    assert flatten(result.parameters).tobytes() == flatten(PARAMETERS).tobytes()


@pytest.mark.parametrize("weights", [{0: 0}, {0: -1}, {0: WEIGHT_ONE + 1}])
def test_weights_stay_within_fixed_point_range(weights: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="weights"):
        aggregate(SPEC, PARAMETERS, {0: payload(0)}, weights)
