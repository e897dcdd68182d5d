import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from training_gym.compression.wire import decode, encode, payload_size
from training_gym.config import CHUNK, ModelConfig, TrainingConfig, TrainingSpec
from training_gym.errors import PayloadError

MODEL = ModelConfig(hidden_size=8, num_layers=1, num_heads=1, sequence_length=8)
HEADER_BYTES = 48


def spec_of(bits: int, top_k: int) -> TrainingSpec:
    return TrainingSpec(MODEL, "unused", TrainingConfig(value_bits=bits, top_k=top_k))


SIZE = spec_of(4, 1).num_parameters()
TAIL = SIZE % CHUNK
specs = st.builds(spec_of, st.sampled_from([2, 4, 8]), st.sampled_from([1, 7, TAIL, TAIL + 1, CHUNK - 1, CHUNK]))
finite = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)
vectors = st.one_of(
    arrays(np.float32, SIZE, elements=finite, fill=st.just(np.float32(0))),
    st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)),
)


@settings(max_examples=60, deadline=None)
@given(specs, vectors)
def test_the_largest_values_arrive_and_nothing_else(spec: TrainingSpec, vector: np.ndarray) -> None:
    payload = encode(spec, vector)
    assert len(payload) == payload_size(spec)
    decoded = decode(spec, payload)
    for start in range(0, SIZE, CHUNK):
        chunk = vector[start : start + CHUNK]
        ranked = sorted(range(len(chunk)), key=lambda place, chunk=chunk: (-abs(chunk[place]), place))
        wanted = sorted(start + place for place in ranked[: spec.training.top_k])
        here = (decoded.indices >= start) & (decoded.indices < start + CHUNK)
        assert decoded.indices[here].tolist() == wanted
        sent, got = np.abs(vector[wanted]).astype(np.float64), np.abs(decoded.values[here]).astype(np.float64)
        levels = 2 ** (spec.training.value_bits - 1) - 1
        spread = sent.max() - sent.min()
        allowed = spread if levels == 1 else 0.5 * spread / levels
        assert (np.abs(sent - got) <= allowed * 1.001 + sent.max() * 1e-6 + 1e-40).all()
    assert (np.sign(decoded.values) * np.sign(vector[decoded.indices]) >= 0).all()
    dense = decoded.dense()
    assert np.count_nonzero(dense) <= len(decoded.indices)
    assert (dense[decoded.indices] == decoded.values).all()


@settings(max_examples=200, deadline=None)
@given(specs, st.data())
def test_no_bytes_make_the_decoder_fail_otherwise(spec: TrainingSpec, data: st.DataObject) -> None:
    payload = bytearray(encode(spec, np.linspace(-1, 1, SIZE, dtype=np.float32)))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(spec, bytes(payload))
    except PayloadError:
        return
    assert np.isfinite(decoded.values).all()
    assert (np.diff(decoded.indices) > 0).all()
    assert decoded.indices[-1] < SIZE


@given(st.binary(max_size=400))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(spec_of(4, 64), data)


@pytest.mark.parametrize(
    ("offset", "replacement", "code"),
    [
        (0, b"ZIPG", "wrong_header"),
        (4, b"\x02", "wrong_header"),
        (5, b"\x02", "wrong_header"),
        (16, bytes(32), "wrong_header"),
        (HEADER_BYTES, struct.pack("<f", float("nan")), "wrong_scale"),
        (HEADER_BYTES, struct.pack("<f", -1.0), "wrong_scale"),
        (HEADER_BYTES, struct.pack("<f", 1e30), "wrong_scale"),
        (HEADER_BYTES + 8, struct.pack("<f", float("inf")), "wrong_scale"),
        (HEADER_BYTES + 16, b"\xff\xff\xff", "wrong_index"),
        (-1, b"\x0f", "not_canonical"),
    ],
)
def test_each_malformation_has_its_reason(offset: int, replacement: bytes, code: str) -> None:
    spec = spec_of(4, TAIL + 1)  # an odd number of entries, so that both bit sections end within a byte
    payload = bytearray(encode(spec, np.linspace(1, 2, SIZE, dtype=np.float32)))
    start = offset % len(payload)
    payload[start : start + len(replacement)] = replacement
    with pytest.raises(PayloadError) as refusal:
        decode(spec, bytes(payload))
    assert refusal.value.code == code


def test_a_zero_vector_has_one_payload() -> None:
    spec = spec_of(8, 4)
    zero = np.zeros(SIZE, np.float32)
    payload = encode(spec, zero)
    assert payload == encode(spec, -zero)
    assert not decode(spec, payload).values.any()
    for last in (b"\x80", b"\x01"):  # a negative zero, a level where the step is zero
        with pytest.raises(PayloadError, match="another way"):
            decode(spec, payload[:-1] + last)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_not_sent(value: float) -> None:
    vector = np.zeros(SIZE, np.float32)
    vector[5] = value
    with pytest.raises(PayloadError) as refusal:
        encode(spec_of(4, 64), vector)
    assert refusal.value.code == "not_finite"
