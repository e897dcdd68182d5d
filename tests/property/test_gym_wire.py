import json
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from kit.errors import raises_code
from kit.measures import peak_bytes
from kit.profile import examples
from kit.training import spec_of
from kit.uncompiled import uncompiled_loops

from training_gym.compress import bits as compress_bits
from training_gym.compress import payload_format
from training_gym.compress.bits import packed_size
from training_gym.compress.payload_format import Format, decode, decode_vector, encode, encode_step, encode_vector
from training_gym.compress.positions import chunk_count
from training_gym.compress.quantise import _sum_whole
from training_gym.model.layout import initial_parameters
from training_gym.model.tensors import Vector
from training_gym.spec.config import CHUNK
from training_gym.spec.errors import PayloadError

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "payloads.json").read_text())
HEADER_BYTES = 66
TAIL = 77
SIZE = 2 * CHUNK + TAIL
LAYOUT = bytes(range(32))


def format_of(bits: int, top_k: int, size: int = SIZE) -> Format:
    return Format((size,), top_k, bits, LAYOUT)


def entries_of(length: int, top_k: int) -> int:
    """Return how many entries of a chunk of this length are sent."""
    return -(-length * top_k // CHUNK)


def normal(seed: int) -> Vector:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


formats = st.builds(
    Format,
    st.sampled_from([(SIZE,), (1, TAIL - 1, 2 * CHUNK), (CHUNK + 3, 5, CHUNK - 8 + TAIL)]),
    st.sampled_from([1, 7, TAIL, TAIL + 1, 1024, CHUNK - 1, CHUNK]),
    st.sampled_from([2, 4, 8]),
    st.just(LAYOUT),
)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.one_of(
    arrays(np.float32, SIZE, elements=finite, fill=st.just(np.float32(0))),
    st.integers(0, 2**32 - 1).map(normal),
    st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).integers(-2, 3, SIZE).astype(np.float32)),
)


@settings(max_examples=examples(20, long=250), deadline=None)
@given(formats, vectors)
def test_only_largest_values_are_sent(format_: Format, vector: np.ndarray) -> None:
    payload = encode_vector(format_, vector)
    assert len(payload) <= format_.max_bytes
    decoded = decode_vector(format_, payload)
    ends = np.cumsum(format_.sizes).tolist()
    tensors = zip([0, *ends], ends, strict=False)
    borders = [(start, min(start + CHUNK, end)) for first, end in tensors for start in range(first, end, CHUNK)]
    for start, end in borders:
        chunk = vector[start:end]
        ranked = np.argsort(-np.abs(chunk), kind="stable")  # ties stay in the order of their indices
        wanted = sorted((start + ranked[: entries_of(end - start, format_.top_k)]).tolist())
        here = (decoded.indices >= start) & (decoded.indices < end)
        assert decoded.indices[here].tolist() == wanted
        sent, got = np.abs(vector[wanted]).astype(np.float64), np.abs(decoded.values[here]).astype(np.float64)
        levels = 2 ** (format_.bits - 1) - 1
        widened = sent.max() * (1 + 2.0**-7) - sent.min() * (1 - 2.0**-7)  # the range in bfloat16
        allowed = widened if levels == 1 else 0.5 * widened / levels
        assert (np.abs(sent - got) <= allowed * 1.001 + sent.max() * 2.0**-8 * (sent.max() > 3e38) + 1e-38).all()
    assert (np.sign(decoded.values) * np.sign(vector[decoded.indices]) >= 0).all()
    dense = decoded.dense()
    assert np.count_nonzero(dense) <= len(decoded.indices)
    assert (dense[decoded.indices] == decoded.values).all()


def _describes(format_: Format, decoded: payload_format.Payload) -> None:
    assert np.isfinite(decoded.values).all()
    assert (np.diff(decoded.indices) > 0).all()
    assert decoded.indices[-1] < SIZE
    assert len(decoded.indices) == len(decoded.values) == format_.entries


@settings(max_examples=examples(40, long=300), deadline=None)
@given(formats, vectors, st.data())
def test_decoder_fails_only_with_typed_error(format_: Format, vector: np.ndarray, data: st.DataObject) -> None:
    payload = bytearray(encode_vector(format_, vector))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del payload[data.draw(st.integers(0, len(payload) - 1)) :]
    try:
        decoded = decode_vector(format_, bytes(payload))
    except PayloadError:
        return
    _describes(format_, decoded)


@settings(max_examples=examples(40, long=300), deadline=None)
@given(st.sampled_from([2, 4, 8]), st.integers(1, CHUNK), st.binary(max_size=600), st.binary(min_size=16, max_size=16))
def test_random_bodies_behind_true_header_are_refused(bits: int, top_k: int, body: bytes, lengths: bytes) -> None:
    format_ = format_of(bits, top_k)
    header = struct.pack("<4sBBHQ32s", b"ZOPG", 3, bits, top_k, SIZE, LAYOUT)
    with pytest.raises(PayloadError):
        decode_vector(format_, header + b"\x01\x00" + lengths + body)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_vector(format_of(4, 64), data)


def test_different_payloads_have_different_vectors() -> None:
    """A payload's hash stands for its content: each flipped bit changes the vector."""
    format_ = format_of(4, TAIL, CHUNK + TAIL)
    payload = encode_vector(format_, np.linspace(-1, 2, format_.size, dtype=np.float32))
    original = decode_vector(format_, payload)
    for bit in range(8 * len(payload)):
        changed = bytearray(payload)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            other = decode_vector(format_, bytes(changed))
        except PayloadError:
            continue
        assert other.dense().tobytes() != original.dense().tobytes()


def _values(kind: str, size: int, dice: np.random.Generator) -> Vector:
    if kind == "one":
        drawn = np.full(size, dice.random())
    elif kind == "close":
        drawn = 1 + dice.random(size) * 10.0 ** -dice.integers(1, 5)
    elif kind == "steps":
        drawn = (dice.integers(0x3F70, 0x3F90) + dice.integers(0, 130, size) << 16).astype(np.uint32).view(np.float32)
    elif kind == "subnormal":
        drawn = dice.integers(0, 1 << dice.integers(1, 24), size).astype(np.uint32).view(np.float32)
    else:
        drawn = dice.standard_normal(size)
    return (drawn * dice.choice([-1, 1], size)).astype(np.float32)


def _mutated(payload: bytes, chunks: int, dice: np.random.Generator) -> bytes:
    changed, chunk = bytearray(payload), int(dice.integers(chunks))
    low, high = HEADER_BYTES + 2 * chunk, HEADER_BYTES + 2 * (chunks + chunk)
    kind = dice.integers(3)
    if kind == 0:
        changed[dice.integers(len(changed))] ^= 1 << int(dice.integers(8))
    for place in ((), (low,), (low, high))[kind] if dice.integers(2) else ((), (high,), (low, high))[kind]:
        (scale,) = struct.unpack_from("<H", changed, place)
        struct.pack_into("<H", changed, place, (scale + int(dice.integers(-6, 7))) % (1 << 16))
    return bytes(changed)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", ["one", "close", "steps", "subnormal", "normal"])
def test_every_encoding_of_payload_is_unique(kind: str, bits: int) -> None:
    dice = np.random.default_rng(bits)
    for size, top_k in ((1, 1), (2, CHUNK), (5, 3), (40, 7), (40, CHUNK), (CHUNK + 2, 1), (CHUNK + 2, 64)):
        format_ = format_of(bits, top_k, size)
        payload, sent = encode_step(format_, _values(kind, size, dice))
        dense = decode_vector(format_, payload).dense().tobytes()
        assert sent.dense().tobytes() == dense
        for _ in range(30):
            other = _mutated(payload, chunk_count([size]), dice)
            with suppress(PayloadError):
                assert other == payload or decode_vector(format_, other).dense().tobytes() != dense


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_other_scales_for_same_magnitudes_are_refused(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    dice, refused, format_ = np.random.default_rng(bits), 0, format_of(bits, CHUNK, 5)
    for _ in range(100):
        vector = _values("one", 5, dice)
        if bits == 8:  # as many steps of bfloat16 as of levels
            vector = (1 + (np.array([0, *dice.integers(0, 127, 3), 126]) + 0.9) / 128).astype(np.float32)
        right, sent = encode_step(format_, vector)
        with monkeypatch.context() as patched:
            patched.setattr(payload_format, "narrowest", lambda low, high, meaning, counts: (low, high))
            other, same = encode_step(format_, vector)
        assert sent.dense().tobytes() == same.dense().tobytes()
        if other != right:
            refused += 1
            with raises_code(PayloadError, "not_canonical", match="non-canonical scales"):
                decode_vector(format_, other)
    assert refused


@pytest.mark.parametrize(
    ("offset", "replacement", "code"),
    [
        (0, b"ZIPG", "wrong_header"),
        (4, b"\x01", "wrong_header"),
        (5, b"\x02", "wrong_header"),
        (6, b"\x4f", "wrong_header"),
        (8, b"\xff" * 8, "wrong_header"),
        (16, bytes(32), "wrong_header"),
        (48, b"\x09", "wrong_header"),
        (49, b"\x04", "wrong_header"),
        (50, b"\xff" * 8, "wrong_size"),
        (58, b"\xff" * 8, "wrong_size"),
        (HEADER_BYTES, b"\xff\x7f", "wrong_scale"),
        (HEADER_BYTES, b"\x80\xbf", "wrong_scale"),
        (HEADER_BYTES, b"\x7f\x7f", "wrong_scale"),
        (HEADER_BYTES + 6, b"\x80\x7f", "wrong_scale"),
        (HEADER_BYTES + 12 + 19, b"\x0f", "not_canonical"),
        (HEADER_BYTES + 12 + 20, b"\xff", "wrong_count"),
    ],
)
def test_each_malformation_has_its_reason(offset: int, replacement: bytes, code: str) -> None:
    format_ = format_of(4, TAIL + 1)  # 158 entries, so that the sections end within a byte
    payload = bytearray(encode_vector(format_, np.linspace(1, 2, SIZE, dtype=np.float32)))
    payload[offset : offset + len(replacement)] = replacement
    with raises_code(PayloadError, code):
        decode_vector(format_, bytes(payload))


@pytest.mark.parametrize("vector", VECTORS["payloads"], ids=lambda vector: str(vector["name"]))
@pytest.mark.parametrize("loops", [nullcontext, uncompiled_loops], ids=["compiled", "uncompiled"])
def test_published_vectors_round_trip(
    loops: Callable[[], AbstractContextManager[None]], vector: dict[str, Any]
) -> None:
    format_ = Format(tuple(vector["sizes"]), vector["top_k"], vector["bits"], bytes.fromhex(vector["layout"]))
    payload = bytes.fromhex(vector["payload"])
    with loops():
        assert encode_vector(format_, np.array(vector["values"], np.float32)) == payload
        decoded = decode_vector(format_, payload)
    assert decoded.indices.tolist() == vector["indices"]
    assert decoded.values.tolist() == vector["decoded"]


@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda vector: str(vector["name"]))
def test_published_malformed_vectors_are_refused(vector: dict[str, Any]) -> None:
    format_ = Format(tuple(vector["sizes"]), vector["top_k"], vector["bits"], bytes.fromhex(vector["layout"]))
    with raises_code(PayloadError, vector["code"]):
        decode_vector(format_, bytes.fromhex(vector["payload"]))


def test_malformed_vectors_cover_every_reader_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol" / "payloads.md").read_text()
    _, _, rows = page.partition("Codes of refusals:\n")
    codes = {line.split("`")[1] for line in rows.split("\n\n")[0].splitlines()}
    assert {vector["code"] for vector in VECTORS["malformed"]} == codes - {"not_finite"}


def test_unused_section_must_be_empty() -> None:
    format_ = format_of(8, CHUNK)
    payload = encode_vector(format_, normal(1))
    indices = HEADER_BYTES + 4 * chunk_count([SIZE]) + packed_size(SIZE, 1)  # where the quotients of gaps would be
    longer = payload[:50] + struct.pack("<Q", 1) + payload[58:indices] + b"\x00" + payload[indices:]
    with raises_code(PayloadError, "not_canonical"):
        decode_vector(format_, longer)


def test_value_below_both_levels_decodes_to_lower() -> None:
    vector = np.concatenate([np.zeros(1), np.full(400, 1.0), np.full(CHUNK - 401, 1.1)]).astype(np.float32)
    format_ = format_of(2, CHUNK, CHUNK)
    payload, sent = encode_step(format_, vector)
    decoded = decode_vector(format_, payload)
    assert decoded.values.tobytes() == sent.values.tobytes()
    assert decoded.values[0] == decoded.values.min()


def test_long_vector_pieces_join_exactly() -> None:
    generator = np.random.default_rng(7)
    vector = (generator.standard_normal(70 * CHUNK + 5) ** 3).astype(np.float32)
    for top_k, bits in ((CHUNK, 8), (960, 2), (3, 4)):
        format_ = format_of(bits, top_k, len(vector))
        payload, sent = encode_step(format_, vector)
        decoded = decode_vector(format_, payload)
        assert decoded.values.tobytes() == sent.values.tobytes()
        assert (decoded.indices == sent.indices).all()
        assert np.abs(decoded.dense() - vector).sum() < np.abs(vector).sum()


@pytest.mark.parametrize(("name", "other"), [("_best", 1), ("_best_for_levels", 6)])
def test_suboptimal_rice_parameter_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, other: int) -> None:
    format_ = format_of(8, 512)
    vector = normal(5)
    with monkeypatch.context() as patched:
        patched.setattr(
            payload_format, name, lambda numbers, _: (other, compress_bits.rice_sizes(numbers, range(9))[other])
        )
        payload = encode_vector(format_, vector)
    assert payload != encode_vector(format_, vector)
    with raises_code(PayloadError, "not_canonical"):
        decode_vector(format_, payload)


def test_section_longer_than_its_codes_is_refused() -> None:
    format_ = format_of(8, 512)
    payload = encode_vector(format_, normal(5))
    (unary,) = struct.unpack_from("<Q", payload, 50)
    end = HEADER_BYTES + 12 + packed_size(format_.entries, 1) + unary
    longer = payload[:50] + struct.pack("<Q", unary + 1) + payload[58:end] + b"\0" + payload[end:]
    with raises_code(PayloadError, "not_canonical", match="after its last code"):
        decode_vector(format_, longer)


def test_zero_vector_has_one_payload() -> None:
    format_ = format_of(8, 4)
    zero = np.zeros(SIZE, np.float32)
    payload = encode_vector(format_, zero)
    assert payload == encode_vector(format_, -zero)
    assert not decode_vector(format_, payload).values.any()
    negative = bytearray(payload)
    negative[HEADER_BYTES + 12] = 0x80
    with pytest.raises(PayloadError, match="negative zero"):
        decode_vector(format_, bytes(negative))


@pytest.mark.parametrize("bits", [2, 8])
def test_negative_zero_among_other_values_is_refused(bits: int) -> None:
    vector = np.ones(CHUNK, np.float32)
    vector[: CHUNK // 2] = 0
    format_ = format_of(bits, CHUNK, CHUNK)
    payload = bytearray(encode_vector(format_, vector))
    assert (decode_vector(format_, bytes(payload)).values == vector).all()
    payload[HEADER_BYTES + 4] = 0x80  # the sign of the first value, a zero
    with pytest.raises(PayloadError, match="negative zero"):
        decode_vector(format_, bytes(payload))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("bits", "top_k"), [(4, 64), (2, 64), (2, CHUNK), (8, CHUNK)])
@pytest.mark.parametrize("place", [5, SIZE - 1])
def test_non_finite_values_are_not_sent(value: float, bits: int, top_k: int, place: int) -> None:
    vector = np.zeros(SIZE, np.float32)
    vector[place] = value
    with raises_code(PayloadError, "not_finite"):
        encode_vector(format_of(bits, top_k), vector)


@settings(max_examples=examples(6, long=60), deadline=None)
@given(arrays(np.float32, (3, CHUNK), elements=finite, fill=finite), st.integers(0, 1 << 30))
def test_whole_chunk_means_are_summed_like_numpy(drawn: Vector, seed: int) -> None:
    wide = np.random.default_rng(seed).standard_normal((3, CHUNK)) * 8
    for rows in (drawn, np.exp(wide).astype(np.float32), -np.exp(wide / 99).astype(np.float32)):
        total, above, counts = np.empty(3), np.empty(3), np.empty(3, np.int64)
        _sum_whole(rows.view(np.uint64), total, above, counts)
        magnitudes = np.abs(rows).astype(np.float64)
        beyond = magnitudes > magnitudes.sum(axis=1, keepdims=True) / CHUNK
        assert total.tolist() == magnitudes.sum(axis=1).tolist()
        assert above.tolist() == np.where(beyond, magnitudes, 0.0).sum(axis=1).tolist()
        assert counts.tolist() == beyond.sum(axis=1).tolist()


def test_payload_beyond_its_cap_costs_nothing() -> None:
    """The decoder compares the claimed lengths with the payload before it allocates memory."""
    format_ = format_of(4, 64)
    header = struct.pack("<4sBBHQ32sBBQQ", b"ZOPG", 3, 4, 64, SIZE, LAYOUT, 5, 0, 1 << 62, 1 << 62)
    oversized = bytes(format_.max_bytes + 1)

    def refuse_all() -> None:
        for payload in (header, header + bytes(100), oversized):
            with raises_code(PayloadError, "wrong_size"):
                decode_vector(format_, payload)

    assert peak_bytes(refuse_all) < 100_000


@pytest.mark.parametrize(
    ("bits", "top_k"),
    [(2, CHUNK), (4, CHUNK), (8, CHUNK), (2, CHUNK - 1), (2, 1024), (2, 64), (8, 64), (8, 1)],
)
@pytest.mark.parametrize("kind", ["normal", "close"])
def test_payload_reading_memory_is_bounded_by_cap(bits: int, top_k: int, kind: str) -> None:
    format_ = format_of(bits, top_k, 1000 * CHUNK)
    payload = encode_vector(format_, _values(kind, format_.size, np.random.default_rng(0)))
    decode_vector(format_, payload)  # compiles
    most = peak_bytes(lambda: decode_vector(format_, payload))
    assert most <= 22 * format_.max_bytes + (32 << bits) * 1000 + (1 << 19)  # docs/protocol/payloads.md, "Cap"


def test_specification_fixes_format() -> None:
    spec = spec_of(value_bits=2, top_k=64)
    vector = np.random.default_rng(0).standard_normal(spec.num_parameters()).astype(np.float32)
    payload = encode(spec, vector)
    assert len(payload) <= payload_format.payload_size(spec)
    sizes = [array.size for array in initial_parameters(spec).values()]
    assert max(sizes) < CHUNK
    assert len(decode(spec, payload).values) == sum(entries_of(size, 64) for size in sizes)
    with pytest.raises(PayloadError):
        decode(spec_of(value_bits=4, top_k=64), payload)
