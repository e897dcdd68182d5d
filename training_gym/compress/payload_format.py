"""Byte format of payloads (``docs/protocol/payloads.md``). No torch.

A payload describes itself. The reader still passes the format that the job's specification fixes, and refuses any
other before it allocates memory. Every vector of entries has exactly one payload: the Rice parameters are those of the
fewest bytes, and the decoder recomputes them.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training_gym.compress.bits import (
    MAX_WIDTH,
    add_bits,
    check_end,
    histogram,
    join_codes,
    pack,
    pack_bit,
    pack_unary,
    packed_size,
    rice_sizes,
    unpack,
    unpack_unary,
)
from training_gym.compress.codes import LEVEL, Codes, Counts, add_entries, count_levels, values_of
from training_gym.compress.positions import (
    EVERYWHERE,
    Chunks,
    Integers,
    Offsets,
    chunk_count,
    chunks_of,
    entry_count,
    gaps_of,
    indices_of,
    offsets_of,
)
from training_gym.compress.quantise import (
    Meaning,
    Quantised,
    check_codes,
    level_magnitudes,
    quantise,
    scales_are_valid,
)
from training_gym.compress.scale_choice import canonical_codes, narrowest
from training_gym.model.layout import parameter_shapes, parameter_sizes
from training_gym.model.tensors import Vector
from training_gym.runtime.threads import map_in_threads, parts
from training_gym.spec.config import CHUNK, TrainingSpec
from training_gym.spec.errors import PayloadError
from zoo_protocol.hashing import canonical_json, sha256

MAGIC = b"ZOPG"
VERSION = 3
_HEADER = struct.Struct("<4sBBHQ32sBBQQ")
_INDEX_PARAMETERS = range(MAX_WIDTH + 1)
MAX_MAGNITUDE = 64.0
"""Largest value of a payload that an aggregation takes."""
_GAP_LIMIT = 2 * CHUNK
"""Bound of a gap: fewer entries than two chunks have lie between two consecutive entries."""


@dataclass(frozen=True, slots=True)
class Format:
    """Properties of a payload that the reader knows in advance.

    Attributes:
        sizes: values of each tensor, in the order of the vector.
        top_k: entries sent per 4096 values (``positions``); 4096 sends all without indices.
        bits: 2, 4 or 8 per entry, before entropy coding, sign included.
        layout: digest of the parameters' names and shapes (32 bytes).
    """

    sizes: tuple[int, ...]
    top_k: int
    bits: int
    layout: bytes

    @property
    def size(self) -> int:
        """Number of values of the vector."""
        return sum(self.sizes)

    @property
    def chunks(self) -> Chunks:
        """Chunks of the vector, computed at each access."""
        return chunks_of(self.sizes, self.top_k)

    @property
    def description(self) -> tuple[bytes, int, int, int, int, bytes]:
        """First part of a payload's header."""
        return MAGIC, VERSION, self.bits, self.top_k, self.size, self.layout

    @property
    def entries(self) -> int:
        """Number of entries sent."""
        return entry_count(self.sizes, self.top_k)

    @property
    def max_bytes(self) -> int:
        """Maximum bytes of a payload, from the bounds of its Rice codes."""
        gaps = 0
        if self.top_k < CHUNK:
            skipped = self.size - self.entries
            gaps = min(
                packed_size(self.entries + (skipped >> parameter), 1) + packed_size(self.entries, parameter)
                for parameter in _INDEX_PARAMETERS
            )
        signs, levels = packed_size(self.entries, 1), packed_size(self.entries, self.bits - 1)
        return _HEADER.size + 4 * chunk_count(self.sizes) + signs + gaps + levels


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded payload of a vector of finite values, in C chunks; E entries.

    Attributes:
        chunks, offsets: positions of the entries (see ``positions``).
        codes: [E], codes of the entries (see ``codes``).
        meaning: [C, L + 1], magnitude of each level.
        counts: [C, L + 1], number of entries at each level.
    """

    chunks: Chunks
    offsets: Offsets
    codes: Codes
    meaning: Meaning
    counts: Counts

    @property
    def size(self) -> int:
        """Number of values of the vector."""
        return int(self.chunks.starts[-1])

    @property
    def values(self) -> Vector:
        """Values of the entries [E], computed at each access."""
        return values_of(self.codes, self.chunks.entries, self.meaning)

    @property
    def indices(self) -> Integers:
        """Position of each value in the vector, ascending."""
        return indices_of(self.offsets, self.chunks)

    @property
    def is_out_of_range(self) -> bool:
        """True if a value is beyond ``MAX_MAGNITUDE``."""
        return bool(self.meaning[self.counts > 0].max() > MAX_MAGNITUDE)

    def dense(self) -> Vector:
        """Return the full vector, zero where nothing was sent."""
        if self.chunks.top_k == CHUNK:
            return self.values
        vector = np.zeros(self.size, np.float32)
        vector[self.indices] = self.values
        return vector

    def add_to(self, total: Any, part: slice, amounts: Any, factor: int = 1) -> None:
        """Add the entries of the chunks ``part`` to ``total``, the values of these chunks.

        ``amounts`` [C, L + 1] replaces the magnitudes of the levels (``codes.add_entries``).
        """
        borders = slice(part.start, part.stop + 1)
        starts, entries = self.chunks.starts[borders], self.chunks.entries[borders]
        add_entries(total, starts, entries, self.codes, self.offsets, amounts[part], factor)


def subtract(vector: Vector, payload: Payload) -> None:
    """Subtract a payload from a vector in place, with one rounding per entry."""
    chunks = payload.chunks

    def change(part: slice) -> None:
        payload.add_to(vector[chunks.values(part)], part, payload.meaning, -1)

    map_in_threads(change, chunks.cut(parts(len(vector))))


def uplink(spec: TrainingSpec) -> Format:
    """Return the format of a unit's payload."""
    return Format(parameter_sizes(spec), spec.training.top_k, spec.training.value_bits, layout_digest(spec))


def decoded_bytes(format_: Format) -> int:
    """Return the bytes of a decoded payload: codes, and offsets unless all entries are sent."""
    return max(1, format_.entries * (1 if format_.top_k == CHUNK else 3))


def payload_size(spec: TrainingSpec) -> int:
    """Return the maximum bytes of a unit's payload under this specification."""
    return uplink(spec).max_bytes


def encode(spec: TrainingSpec, vector: Vector) -> bytes:
    """Return a unit's payload: :func:`encode_vector` in the specification's format."""
    return encode_vector(uplink(spec), vector)


def decode(spec: TrainingSpec, payload: bytes) -> Payload:
    """Return an untrusted unit payload's entries (:func:`decode_vector`)."""
    return decode_vector(uplink(spec), payload)


def top_k_of(payload: bytes) -> int | None:
    """Return the entries per chunk in a payload's header, or None if out of range."""
    top_k: int = _HEADER.unpack_from(payload)[3] if len(payload) >= _HEADER.size else 0
    return top_k if 1 <= top_k <= CHUNK else None


def encode_vector(format_: Format, vector: Vector) -> bytes:
    """Return the payload of ``vector`` [format_.size]. Raises PayloadError: it is not finite."""
    return encode_step(format_, vector)[0]


def encode_step(format_: Format, vector: Vector) -> tuple[bytes, Payload]:
    """Return the payload of ``vector`` and its decoding; raises as :func:`encode_vector`."""
    chunks = format_.chunks
    sent = quantise(np.ascontiguousarray(vector, np.float32), chunks, format_.bits)
    step = _step(format_.bits, chunks, sent)
    low, high = narrowest(sent.low, sent.high, step.meaning, step.counts)
    if (low != sent.low).any() or (high != sent.high).any():  # rare: the same values under canonical scales
        sent = Quantised(sent.offsets, low, high, canonical_codes(sent.codes, chunks.entries, step.meaning, low, high))
        step = _step(format_.bits, chunks, sent)
    return _written(format_, sent, step), step


def _step(bits: int, chunks: Chunks, sent: Quantised) -> Payload:
    meaning = level_magnitudes(sent.low, sent.high, bits)
    counts = count_levels(sent.codes, chunks.entries, meaning.shape[1])
    return Payload(chunks, sent.offsets, sent.codes, meaning, counts)


def _written(format_: Format, sent: Quantised, step: Payload) -> bytes:
    gaps = gaps_of(sent.offsets, step.chunks)
    index_parameter, index_sizes = _best(histogram(gaps), _INDEX_PARAMETERS)
    level_parameter, level_sizes = _best_for_levels(step.counts.sum(axis=0), format_.bits)
    rice = index_parameter, level_parameter, index_sizes[0], level_sizes[0]
    header = _HEADER.pack(*format_.description, *rice)
    scales = [sent.low.astype("<u2").tobytes(), sent.high.astype("<u2").tobytes()]
    sections: list[Callable[[], bytes]] = [
        lambda: pack_bit(sent.codes, 7),
        lambda: pack_unary(gaps, index_parameter),
        lambda: pack(gaps, index_parameter),
        lambda: pack_unary(sent.codes & LEVEL, level_parameter) if level_sizes[0] else b"",
        lambda: pack(sent.codes, level_parameter),
    ]
    return b"".join([header, *scales, *map_in_threads(lambda section: section(), sections)])


def decode_vector(format_: Format, payload: bytes) -> Payload:
    """Return the entries of an untrusted payload. Raises PayloadError: the payload is malformed."""
    if not _HEADER.size <= len(payload) <= format_.max_bytes:
        detail = f"has {len(payload)} bytes; expected {_HEADER.size} to {format_.max_bytes}"
        raise PayloadError("wrong_size", "payload", detail)
    *description, index_parameter, level_parameter, index_unary, level_unary = _HEADER.unpack_from(payload)
    names = ("magic", "version", "value bits", "top k", "size", "layout")
    for name, found, wanted in zip(names, description, format_.description, strict=True):
        if found != wanted:
            raise PayloadError("wrong_header", "payload", f"{name} differs from the job's format")
    if index_parameter > MAX_WIDTH or level_parameter >= format_.bits:
        raise PayloadError("wrong_header", "payload", "a Rice parameter is out of range")

    entries, scales = format_.entries, 2 * chunk_count(format_.sizes)
    coded = entries if format_.top_k < CHUNK else 0
    sizes = (
        scales,
        scales,
        packed_size(entries, 1),
        index_unary,
        packed_size(coded, index_parameter),
        level_unary,
        packed_size(entries, level_parameter),
    )
    if _HEADER.size + sum(sizes) != len(payload):
        raise PayloadError("wrong_size", "payload", f"has {len(payload)} bytes; the header describes another length")
    sections, start = [], _HEADER.size
    for size in sizes:
        sections.append(memoryview(payload)[start : start + size])
        start += size

    low, high = (np.frombuffer(section, "<u2").astype(np.uint16) for section in sections[:2])
    if not scales_are_valid(low, high):
        raise PayloadError("wrong_scale", "payload", "a chunk's scales are not finite or not 0 <= low <= high")
    check_end(sections[2], entries)
    lower = unpack(sections[4], coded, index_parameter)
    gaps = _rice(sections[3], lower, index_parameter, _GAP_LIMIT, "wrong_index")
    chunks = format_.chunks
    offsets = _offsets(format_, chunks, gaps)
    codes = _levels(format_, level_parameter, sections[5], sections[6])
    add_bits(codes, sections[2], 7)
    meaning = level_magnitudes(low, high, format_.bits)
    counts = count_levels(codes, chunks.entries, meaning.shape[1])
    check_codes(codes, chunks.entries, low, high, meaning)
    right_low, right_high = narrowest(low, high, meaning, counts)
    if (low != right_low).any() or (high != right_high).any():
        raise PayloadError("not_canonical", "payload", "a chunk uses non-canonical scales")
    best = _best(histogram(gaps), _INDEX_PARAMETERS)[0], _best_for_levels(counts.sum(axis=0), format_.bits)[0]
    if best != (index_parameter, level_parameter):
        raise PayloadError("not_canonical", "payload", "a Rice parameter is not canonical")
    return Payload(chunks, offsets, codes, meaning, counts)


def layout_digest(spec: TrainingSpec) -> bytes:
    """Return the digest of the parameters' names and shapes (32 bytes)."""
    return sha256(canonical_json([[name, list(shape)] for name, shape in parameter_shapes(spec).items()]))


def _offsets(format_: Format, chunks: Chunks, gaps: Offsets) -> Offsets:
    """Return the entries' offsets; refuse a chunk with a wrong number of entries."""
    if format_.top_k == CHUNK:
        return EVERYWHERE
    offsets = offsets_of(gaps, chunks)
    if offsets is None:
        raise PayloadError("wrong_index", "payload", "a chunk has a wrong number of indices")
    return offsets


def _levels(format_: Format, parameter: int, unary: memoryview, remainders: memoryview) -> Codes:
    lower = unpack(remainders, format_.entries, parameter)
    if parameter == format_.bits - 1:  # fixed width: the quotients are 0 and not written
        if len(unary):
            raise PayloadError("not_canonical", "payload", "levels of full width have no quotients")
        return lower
    most = ((1 << (format_.bits - 1)) - 1) >> parameter
    join_codes(unpack_unary(unary, len(lower), most, "wrong_level"), lower, parameter)
    return lower


def _rice(
    unary: memoryview, remainders: NDArray[np.uint8], parameter: int, limit: int, code: str
) -> NDArray[np.uint16]:
    numbers = unpack_unary(unary, len(remainders), (limit - 1) >> parameter, code)
    numbers <<= parameter
    numbers |= remainders
    return numbers


def _best(counts: Counts, parameters: range) -> tuple[int, tuple[int, int]]:
    sizes = rice_sizes(counts, parameters)
    best = min(parameters, key=lambda parameter: sum(sizes[parameter]))
    return best, sizes[best]


def _best_for_levels(counts: Counts, bits: int) -> tuple[int, tuple[int, int]]:
    """Return what :func:`_best` returns; the parameter ``bits - 1`` means fixed width."""
    fixed = bits - 1
    sizes = [*rice_sizes(counts, range(fixed)), (0, packed_size(int(counts.sum()), fixed))]
    best = min(range(bits), key=lambda parameter: sum(sizes[parameter]))
    return best, sizes[best]
