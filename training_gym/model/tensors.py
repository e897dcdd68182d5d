"""Named float32 arrays: digest, flat view, and safetensors files. No torch.

A flat vector is the concatenation of the model's parameters in canonical (sorted name) order.
"""

import hashlib
import json
import math
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from training_gym.model.layout import Arrays, NamedArrays, parameter_shapes
from training_gym.runtime.threads import map_in_threads
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import StateError
from zoo_protocol import merkle

Vector = NDArray[np.float32]
_HEADER_ALLOWANCE = 1 << 16
_HEADER_PER_TENSOR = 512
_MAPPED_TYPES = {"F32": "<f4"}


CHUNK = 1 << 20
"""Values that one hash of a leaf covers (4 MiB), so that threads share a large tensor."""
LEAF_VERSIONS = "zoo-tensor-1 zoo-tensor-2"
"""Kinds of leaves, part of the environment class: nodes that digest otherwise are not compared by bits."""
HASH_THREADS = min(8, os.cpu_count() or 1)


class TensorDigest:
    """Merkle root with one leaf per array, in the names' order (:mod:`zoo_protocol.merkle`).

    The tree proves that a state contains a tensor, or differs in it, without the other tensors. A leaf hashes version,
    header and the SHA2-256 of each :data:`CHUNK` of the values. The header is ``["name","F32",[shape]]`` as JSON
    without blanks, preceded by its length; the values are float32, little-endian. The version is ``zoo-tensor-1`` for
    one chunk and ``zoo-tensor-2`` for several.
    """

    def __init__(self) -> None:
        self._leaves: list[bytes] = []
        self._header = b""
        self._chunks: list[bytes] = []
        self._values, self._room = hashlib.sha256(), CHUNK

    def begin(self, name: str, shape: Sequence[int]) -> None:
        """Start the next array; its values follow."""
        self._end()
        self._header, self._chunks = _leaf_header(name, shape), []

    def update(self, values: NDArray[np.float32]) -> None:
        """Add values of the current array, in order."""
        left = _flat(values)
        while len(left):
            if not self._room:
                self._end_chunk()
            part, left = left[: self._room], left[self._room :]
            self._values.update(part.data)
            self._room -= len(part)

    def digest(self) -> bytes:
        """Return the digest of all arrays (32 bytes) and end the input. Raises ValueError: none."""
        self._end()
        return merkle.root(self._leaves)

    def _end(self) -> None:
        if self._header:
            self._end_chunk()
            self._leaves.append(_leaf(self._header, self._chunks))
            self._header = b""

    def _end_chunk(self) -> None:
        self._chunks.append(self._values.digest())
        self._values, self._room = hashlib.sha256(), CHUNK


def _leaf_header(name: str, shape: Sequence[int]) -> bytes:
    header = json.dumps([name, "F32", list(shape)], separators=(",", ":")).encode()
    return struct.pack(">Q", len(header)) + header


def _leaf(header: bytes, chunks: Sequence[bytes]) -> bytes:
    version = b"zoo-tensor-1" if len(chunks) == 1 else b"zoo-tensor-2"
    return merkle.leaf_hash(version + header + b"".join(chunks))


def _flat(values: NDArray[np.float32]) -> Vector:
    return np.ascontiguousarray(values, "<f4").reshape(-1)


def tensor_leaf(name: str, values: NDArray[np.float32], threads: int = HASH_THREADS) -> bytes:
    """Return the leaf of one array in the tree whose root is :func:`tensor_digest` (32 bytes)."""
    flat = _flat(values)
    parts = [flat[start : start + CHUNK] for start in range(0, max(1, len(flat)), CHUNK)]
    chunks = map_in_threads(lambda part: hashlib.sha256(part.data).digest(), parts, threads)
    return _leaf(_leaf_header(name, values.shape), chunks)


def tensor_digest(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return the :class:`TensorDigest` of arrays in the order of their names (32 bytes)."""

    def leaf_of_small(name: str) -> bytes | None:
        values = arrays[name]
        return tensor_leaf(name, values) if values.size <= CHUNK else None

    names = sorted(arrays)
    leaves = map_in_threads(leaf_of_small, names, HASH_THREADS)  # then each large one in all threads
    return merkle.root([leaf or tensor_leaf(name, arrays[name]) for name, leaf in zip(names, leaves, strict=True)])


class LazyArrays(Mapping[str, NDArray[np.float32]]):
    """Arrays by name, each made at every access, so that only those in use take memory."""

    def __init__(self, sources: Mapping[str, Callable[[], NDArray[np.float32]]]) -> None:
        self.sources = sources

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self.sources[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)


def renamed(arrays: Mapping[str, NDArray[np.float32]], names: Mapping[str, str]) -> LazyArrays:
    """Return some of ``arrays`` under other names: ``names`` has each one's former name."""
    return LazyArrays({name: partial(arrays.__getitem__, former) for name, former in names.items()})


def flatten(arrays: Mapping[str, NDArray[np.float32]]) -> Vector:
    """Return the flat vector of parameters."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


class FlatView:
    """The flat vector of parameters, read and changed in parts without a copy of the whole."""

    def __init__(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        self._arrays = [arrays[name].reshape(-1, copy=False) for name in sorted(arrays)]
        self._starts = list(accumulate((len(array) for array in self._arrays), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def copy(self, part: slice, out: Vector) -> None:
        """Copy a bounded part to ``out`` of the same length."""
        np.concatenate(self._views(part), out=out)

    def change(self, part: slice, change: Callable[[Vector], None]) -> None:
        """Apply ``change`` to the values of a part, and thereby to the arrays."""
        views = self._views(part)
        values = views[0] if len(views) == 1 else np.concatenate(views)
        change(values)
        if len(views) > 1:
            start = 0
            for view in views:
                view[:] = values[start : start + len(view)]
                start += len(view)

    def _views(self, part: slice) -> list[Vector]:
        found, place, number = [], part.start, bisect_right(self._starts, part.start) - 1
        while place < part.stop:
            start, end = self._starts[number], min(part.stop, self._starts[number + 1])
            found.append(self._arrays[number][place - start : end - start])
            place, number = end, number + 1
        return found


def unflatten(spec: TrainingSpec, vector: Vector) -> Arrays:
    """Return the parameters of a flat vector as views of it."""
    arrays, start = {}, 0
    for name, shape in parameter_shapes(spec).items():
        size = int(np.prod(shape))
        arrays[name] = vector[start : start + size].reshape(shape)
        start += size
    return arrays


def save_arrays(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return safetensors bytes without metadata; equal arrays give equal bytes."""
    return b"".join(safetensors_pieces(arrays))


def safetensors_pieces(arrays: Mapping[str, NDArray[np.float32]]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of :func:`save_arrays` in pieces that are views of ``arrays``.

    The library copies each array twice, which takes longer than hashing the file.
    """
    yield _header({name: array.shape or (1,) for name, array in arrays.items()})
    for name in sorted(arrays):
        yield np.ascontiguousarray(arrays[name], "<f4").reshape(-1).view(np.uint8).data


def write_arrays(path: Path, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Write the file of :func:`save_arrays` without a copy of it in memory."""
    with path.open("wb") as file:
        file.writelines(safetensors_pieces(arrays))


def _header(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    header, start = {}, 0
    for name in sorted(shapes):
        end = start + 4 * math.prod(shapes[name])
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def file_bytes(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the size in bytes of a :func:`save_arrays` file with these ``shapes``."""
    return len(_header(shapes)) + 4 * sum(math.prod(shape) for shape in shapes.values())


def stream_arrays(
    pieces: Iterable[bytes], shapes: Mapping[str, tuple[int, ...]], what: str
) -> Iterator[tuple[str, Vector]]:
    """Yield an untrusted :func:`save_arrays` file's values, one piece in memory.

    Yields each array's name with some of its values (flat, never none), in the order of names and positions.

    Raises:
        StateError: not exactly the file that ``save_arrays`` writes of such arrays, or a value is not finite.
    """
    rest, source = b"", iter(pieces)

    def take(size: int, unit: int = 1) -> bytes:
        """Return at most ``size`` bytes, a multiple of ``unit`` unless the file ends."""
        nonlocal rest
        while len(rest) < min(size, unit):
            piece = next(source, None)
            if piece is None:
                raise StateError("malformed", what, "ends early; fetch it again")
            rest += piece
        size = min(size, len(rest) - len(rest) % unit)
        taken, rest = rest[:size], rest[size:]
        return taken

    header = len(_header(shapes))
    check_header(take(header, header), shapes, what)
    for name in sorted(shapes):
        left = 4 * math.prod(shapes[name])
        while left:
            values = np.frombuffer(take(left, 4), "<f4")
            if not np.isfinite(values).all():
                raise StateError("not_finite", what, f"{name} has a value that is not finite")
            left -= values.nbytes
            yield name, values
    if rest or any(source):
        raise StateError("too_large", what, f"has more than the {file_bytes(shapes)} bytes of this model")


def read_arrays(pieces: Iterable[bytes], shapes: Mapping[str, tuple[int, ...]], what: str) -> Arrays:
    """Return the arrays that :func:`stream_arrays` yields; raises as it does."""
    arrays = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    places = dict.fromkeys(shapes, 0)
    for name, values in stream_arrays(pieces, shapes, what):
        end = places[name] + len(values)
        arrays[name].reshape(-1)[places[name] : end] = values
        places[name] = end
    return arrays


def check_header(data: bytes, shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Refuse a file that :func:`save_arrays` would write differently. Raises StateError."""
    if not data.startswith(_header(shapes)):
        raise StateError("malformed", what, "header differs from that of this specification's state")


def load_arrays(data: bytes, shapes: Mapping[str, tuple[int, ...]], what: str) -> Arrays:
    """Return the arrays in untrusted safetensors bytes of exactly these ``shapes``.

    Raises:
        StateError: too large, malformed, unexpected tensors, or a value is not finite.
    """
    _check_size(len(data), shapes, what)
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise _malformed(what, error) from error
    _check_arrays(arrays, shapes, what)
    return arrays


def map_arrays(path: Path, shapes: Mapping[str, tuple[int, ...]], what: str) -> LazyArrays:
    """Return what :func:`load_arrays` does of a file, each array mapped at its access."""
    _check_size(path.stat().st_size, shapes, what)
    try:
        with safetensors.safe_open(path, "numpy"):
            arrays = mapped_arrays(path)
        _check_arrays(arrays, shapes, what)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise _malformed(what, error) from error
    return arrays


def mapped_arrays(path: Path) -> LazyArrays:
    """Return the arrays of a file that this machine wrote, or whose format was checked."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)

    def source(dtype: str, shape: Sequence[int], offset: int) -> Callable[[], NDArray[np.float32]]:
        kind = _MAPPED_TYPES.get(dtype, "V1")
        return lambda: np.memmap(path, kind, "r", 8 + length + offset, tuple(shape))

    return LazyArrays(
        {name: source(one["dtype"], one["shape"], one["data_offsets"][0]) for name, one in header.items()}
    )


def _malformed(what: str, error: Exception) -> StateError:
    return StateError("malformed", what, f"is not a safetensors file ({error!s:.120}); fetch it again")


def _check_size(size: int, shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    expected = sum(4 * int(np.prod(shape)) for shape in shapes.values())
    limit = expected + _HEADER_ALLOWANCE + _HEADER_PER_TENSOR * len(shapes)
    if size > limit:
        raise StateError("too_large", what, f"has {size} bytes; expected at most {limit} for this model")


def _check_arrays(arrays: NamedArrays, shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    if set(arrays) != set(shapes):
        differing = sorted(set(arrays) ^ set(shapes))[:3]
        raise StateError("wrong_tensors", what, f"tensors differ from this model's: {', '.join(differing)}")
    for name, shape in shapes.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.shape != shape:
            raise StateError("wrong_tensors", what, f"{name} is {array.dtype}{array.shape}, expected float32{shape}")
        if not np.isfinite(array).all():
            raise StateError("not_finite", what, f"{name} has a value that is not finite")
