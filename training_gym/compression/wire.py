"""The pseudo-gradient payload, byte for byte. No torch.

The flat vector of N values (``training_gym.tensors``) is cut into C = ceil(N / 4096) chunks, the last one shorter. Of a
chunk of length n the min(k, n) largest magnitudes are sent, ties to the lower index. All numbers are little-endian::

    4   magic "ZOPG"
    1   version, 1
    1   b, bits per value: 2, 4 or 8
    2   k, entries per chunk
    8   N
    32  layout digest: SHA2-256 of the canonical JSON [[name, shape], ...] of the parameters, sorted by name
    4C  low[c], float32:  the magnitude that level 0 of chunk c stands for
    4C  high[c], float32: the magnitude that level L = 2**(b-1) - 1 stands for
    ..  E indices within their chunk, 12 bits each, strictly ascending in each chunk
    ..  E values, b bits each: sign (1 = negative), then the level in b-1 bits

E is the sum of min(k, n) over the chunks. Bits are packed most significant first; each bit section ends with zero
bits up to a full byte. A value decodes to ±(low + (high - low) / L * level) in float32 arithmetic. So that nothing can
be written in two ways: 0 <= low <= high, levels are 0 where (high - low) / L is 0, and a zero is never negative. The
length follows from the specification; a payload of any other length is refused before anything is allocated.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training_gym.config import CHUNK, TrainingSpec
from training_gym.errors import PayloadError
from training_gym.models.layout import parameter_shapes
from training_gym.tensors import Vector
from zoo_protocol.hashing import canonical_json, sha256

MAGIC = b"ZOPG"
VERSION = 1
INDEX_BITS = 12

_HEADER = struct.Struct("<4sBBHQ32s")

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded payload: ``values`` (float32, finite) at ascending flat ``indices`` of a vector of ``size`` values."""

    size: int
    indices: Integers
    values: Vector

    def dense(self) -> Vector:
        """The full vector, zero where nothing was sent."""
        vector = np.zeros(self.size, np.float32)
        vector[self.indices] = self.values
        return vector


def payload_size(spec: TrainingSpec) -> int:
    """Bytes of every payload of this specification."""
    counts = _entry_counts(spec)
    entries = int(counts.sum())
    return _HEADER.size + 8 * len(counts) + _packed_size(entries, INDEX_BITS) + _packed_size(entries, _bits(spec))


def encode(spec: TrainingSpec, vector: Vector) -> bytes:
    """The payload of ``vector`` [num_parameters].

    Raises:
        PayloadError: if a value is not finite.
    """
    if not np.isfinite(vector).all():
        raise PayloadError("not_finite", "pseudo_gradient", "holds a value that is not finite; training has diverged")
    counts, levels = _entry_counts(spec), _levels(spec)
    magnitudes = np.full((len(counts), CHUNK), -1, np.float32)  # padding ranks below every real value
    magnitudes.ravel()[: len(vector)] = np.abs(vector)
    largest = np.argsort(-magnitudes, axis=1, kind="stable")[:, : spec.training.top_k]
    sent = np.zeros(magnitudes.shape, np.bool_)
    np.put_along_axis(sent, largest, True, axis=1)
    sent &= magnitudes >= 0
    low, high = _scales(magnitudes, sent, levels)
    chunks, places = np.nonzero(sent)
    step = _step(low, high, levels)
    distance = magnitudes[chunks, places] - low[chunks]
    quotient = np.divide(distance, step[chunks], out=np.zeros_like(distance), where=step[chunks] > 0)
    level = np.clip(np.rint(quotient), 0, levels).astype(np.uint16)
    zero = low[chunks] + step[chunks] * level == 0
    negative = (vector[chunks * CHUNK + places] < 0) & ~zero
    header = _HEADER.pack(MAGIC, VERSION, _bits(spec), spec.training.top_k, len(vector), layout_digest(spec))
    return b"".join(
        (
            header,
            low.astype("<f4").tobytes(),
            high.astype("<f4").tobytes(),
            _pack(places.astype(np.uint16), INDEX_BITS),
            _pack(level | (negative.astype(np.uint16) << np.uint16(_bits(spec) - 1)), _bits(spec)),
        )
    )


def decode(spec: TrainingSpec, payload: bytes) -> Payload:
    """The entries of a payload from a stranger.

    Raises:
        PayloadError: naming what is malformed.
    """
    counts, levels, bits = _entry_counts(spec), _levels(spec), _bits(spec)
    if len(payload) != payload_size(spec):
        raise PayloadError("wrong_size", "payload", f"has {len(payload)} bytes; this job's have {payload_size(spec)}")
    expected = (MAGIC, VERSION, bits, spec.training.top_k, spec.num_parameters(), layout_digest(spec))
    for name, found, wanted in zip(
        ("magic", "version", "value bits", "top k", "size", "layout"),
        _HEADER.unpack_from(payload),
        expected,
        strict=True,
    ):
        if found != wanted:
            raise PayloadError("wrong_header", "payload", f"{name} is not this job's")
    body = memoryview(payload)[_HEADER.size :]
    low = np.frombuffer(body[: 4 * len(counts)], "<f4").astype(np.float32)
    high = np.frombuffer(body[4 * len(counts) : 8 * len(counts)], "<f4").astype(np.float32)
    if not (np.isfinite(high) & (low >= 0) & (low <= high)).all():
        raise PayloadError("wrong_scale", "payload", "a chunk's magnitudes are not 0 <= low <= high and finite")

    chunks = np.repeat(np.arange(len(counts)), counts)
    split = 8 * len(counts) + _packed_size(len(chunks), INDEX_BITS)
    places = _unpack(body[8 * len(counts) : split], len(chunks), INDEX_BITS).astype(np.int64)
    indices = chunks * CHUNK + places
    if indices[-1] >= spec.num_parameters() or (np.diff(indices) <= 0).any():
        raise PayloadError("wrong_index", "payload", "indices do not ascend within their chunk")

    codes = _unpack(body[split:], len(chunks), bits)
    level, negative = codes & np.uint16(levels), codes > levels
    step = _step(low, high, levels)[chunks]
    with np.errstate(over="ignore"):
        magnitude = low[chunks] + step * level.astype(np.float32)
    if not np.isfinite(magnitude).all():
        raise PayloadError("not_finite", "payload", "a value is beyond float32")
    if ((step == 0) & (level > 0)).any() or ((magnitude == 0) & negative).any():
        raise PayloadError("not_canonical", "payload", "a value is written in another way than the format allows")
    return Payload(spec.num_parameters(), indices, np.where(negative, -magnitude, magnitude))


def layout_digest(spec: TrainingSpec) -> bytes:
    """Digest of the parameters' names and shapes (32 bytes)."""
    return sha256(canonical_json([[name, list(shape)] for name, shape in parameter_shapes(spec.model).items()]))


def _bits(spec: TrainingSpec) -> int:
    return spec.training.value_bits


def _levels(spec: TrainingSpec) -> int:
    """The highest magnitude level."""
    return (1 << (_bits(spec) - 1)) - 1


def _entry_counts(spec: TrainingSpec) -> Integers:
    """Entries sent per chunk."""
    full, tail = divmod(spec.num_parameters(), CHUNK)
    lengths = [CHUNK] * full + ([tail] if tail else [])
    return np.minimum(np.array(lengths, np.int64), spec.training.top_k)


def _scales(magnitudes: Vector, sent: NDArray[np.bool_], levels: int) -> tuple[Vector, Vector]:
    """Each chunk's (low, high): with many levels the range sent, with two the means of its lower and upper part."""
    if levels > 1:
        low = np.where(sent, magnitudes, np.inf).min(axis=1)
        return low, np.where(sent, magnitudes, 0).max(axis=1)
    lower = sent & (magnitudes <= _mean(magnitudes, sent)[:, None])
    upper = sent & ~lower
    low = _mean(magnitudes, lower)
    return low, np.maximum(low, _mean(magnitudes, upper))


def _mean(values: Vector, chosen: NDArray[np.bool_]) -> Vector:
    total = np.where(chosen, values, 0).sum(axis=1, dtype=np.float64)
    mean: Vector = (total / np.maximum(chosen.sum(axis=1), 1)).astype(np.float32)
    return mean


def _step(low: Vector, high: Vector, levels: int) -> Vector:
    return (high - low) / np.float32(levels)


def _packed_size(count: int, width: int) -> int:
    return (count * width + 7) // 8


def _pack(values: NDArray[np.uint16], width: int) -> bytes:
    bits = np.unpackbits(values.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1)
    return np.packbits(bits[:, 16 - width :]).tobytes()


def _unpack(data: memoryview, count: int, width: int) -> NDArray[np.uint16]:
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    if bits[count * width :].any():
        raise PayloadError("not_canonical", "payload", "a bit section does not end in zero bits")
    words = np.zeros((count, 16), np.uint8)
    words[:, 16 - width :] = bits[: count * width].reshape(count, width)
    return np.packbits(words, axis=1).view(">u2").astype(np.uint16).ravel()
