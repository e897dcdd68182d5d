"""Named float32 arrays: digest, flat view, and the only reader and writer of safetensors files. No torch.

A flat vector is the concatenation of the model's parameters in canonical (sorted name) order.
"""

import hashlib
import json
import struct
from collections.abc import Mapping

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from training_gym.config import ModelConfig
from training_gym.errors import StateError
from training_gym.models.layout import Arrays, parameter_shapes

Vector = NDArray[np.float32]

_HEADER_ALLOWANCE = 1 << 16
_HEADER_PER_TENSOR = 512


def tensor_digest(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    """SHA2-256 over the sorted names with each array's dtype, shape and little-endian bytes (32 bytes)."""
    digest = hashlib.sha256(b"zoo-tensors-1")
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], "<f4")
        header = json.dumps([name, "F32", list(array.shape)], separators=(",", ":")).encode()
        digest.update(struct.pack(">Q", len(header)) + header)
        digest.update(array.data)
    return digest.digest()


def flatten(arrays: Mapping[str, NDArray[np.float32]]) -> Vector:
    """The flat vector of parameters."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def unflatten(model: ModelConfig, vector: Vector) -> Arrays:
    """The parameters of a flat vector (views of it)."""
    arrays, start = {}, 0
    for name, shape in parameter_shapes(model).items():
        size = int(np.prod(shape))
        arrays[name] = vector[start : start + size].reshape(shape)
        start += size
    return arrays


def save_arrays(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Safetensors bytes without metadata: equal arrays give equal bytes, those of ``safetensors.numpy.save``."""
    return b"".join(safetensors_pieces(arrays))


def safetensors_pieces(arrays: Mapping[str, NDArray[np.float32]]) -> list[bytes | memoryview]:
    """The bytes of :func:`save_arrays` in pieces that are views of ``arrays``: nothing is copied on the way to storage.

    The library copies each array twice, which takes longer than hashing the file.
    """
    ordered = {name: np.ascontiguousarray(arrays[name], "<f4") for name in sorted(arrays)}
    header, start = {}, 0
    for name, array in ordered.items():
        offsets = [start, start + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, *(array.reshape(-1).view(np.uint8).data for array in ordered.values())]


def load_arrays(data: bytes, shapes: Mapping[str, tuple[int, ...]], what: str) -> Arrays:
    """The float32 arrays in safetensors bytes from a stranger, which must have exactly these names and ``shapes``.

    Raises:
        StateError: too large, malformed, other tensors than expected, or a value that is not finite.
    """
    expected = sum(4 * int(np.prod(shape)) for shape in shapes.values())
    limit = expected + _HEADER_ALLOWANCE + _HEADER_PER_TENSOR * len(shapes)
    if len(data) > limit:
        raise StateError("too_large", what, f"has {len(data)} bytes; this model's takes at most {limit}")
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise StateError("malformed", what, f"is no safetensors file ({error!s:.120}); fetch it again") from error
    if set(arrays) != set(shapes):
        differing = sorted(set(arrays) ^ set(shapes))[:3]
        raise StateError("wrong_tensors", what, f"has other tensors than this model's: {', '.join(differing)}")
    for name, shape in shapes.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.shape != shape:
            raise StateError("wrong_tensors", what, f"{name} is {array.dtype}{array.shape}, expected float32{shape}")
        if not np.isfinite(array).all():
            raise StateError("not_finite", what, f"{name} holds a value that is not finite")
    return arrays
