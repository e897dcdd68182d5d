"""Folders of models as ``save_pretrained`` writes them, with checks. No torch.

A base model is untrusted. Its manifest lists the files by CID; the configuration is inside, so that a price needs no
other file. Only safetensors files are read. Each tensor's name, type and shape is compared with what the configuration
makes, before any value is read: the headers suffice. A manifest is the canonical JSON of::

    {"kind": "zoo-model/1", "config": {...},
     "files": {"model.safetensors": {"cid": ..., "size": bytes, "sha256": "0x..."}, ...}}
"""

import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training_gym.model.library import config_json, read_config_json
from training_gym.model.tensors import write_arrays
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.errors import ManifestError, StateError
from training_gym.spec.manifests import StoredFile, read_fields, read_file, read_json
from zoo_protocol.hashing import canonical_json

KIND = "zoo-model/1"
MAX_FILES = 64
MAX_FILE_BYTES = 1 << 36
MAX_HEADER_BYTES = 1 << 20
"""Limit on the headers of all files together. The largest configuration takes less than half."""
MAX_DIMENSIONS = 8
DEFAULT_LENGTH = 1024
"""Tokens of a training sequence if a job on a base model does not say."""
_DTYPES = {"F32": 4, "BF16": 2, "F16": 2}
_OTHER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json"),
    *(
        "chat_template.jinja",
        "generation_config.json",
        "model.safetensors.index.json",
        "vocab.json",
        "LICENSE",
        "NOTICE",
    ),
)
_TEXT_FILE = re.compile(r"\w[\w.-]*\.(md|txt)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """Files of a model, and the content of its ``config.json``."""

    config: dict[str, Any]
    files: dict[str, StoredFile]

    def to_bytes(self) -> bytes:
        """Return the canonical manifest file."""
        files = {name: asdict(file) for name, file in self.files.items()}
        return canonical_json({"kind": KIND, "config": self.config, "files": files})

    @classmethod
    def from_bytes(cls, data: bytes) -> "ModelManifest":
        """Parse an untrusted manifest file. Raises ManifestError, which names the wrong field."""
        document = read_fields(read_json(data, "model manifest"), "manifest", ["kind", "config", "files"])
        if document["kind"] != KIND:
            raise ManifestError("unsupported_value", "manifest.kind", f"must be {KIND!r}")
        config, files = document["config"], document["files"]
        if not isinstance(config, dict) or not isinstance(files, dict):
            raise ManifestError("wrong_type", "manifest.files", "config and files must be objects")
        if len(files) > MAX_FILES:
            raise ManifestError("too_large", "manifest.files", f"has {len(files)} files, beyond {MAX_FILES}")
        return cls(
            config,
            {check_file_name(name): read_file(file, f"files.{name}", MAX_FILE_BYTES) for name, file in files.items()},
        )

    def weights(self) -> list[str]:
        """Return the names of the safetensors files. Raises ManifestError: there is none."""
        names = sorted(name for name in self.files if name.endswith(".safetensors"))
        if not names:
            raise ManifestError("missing_key", "manifest.files", "has no safetensors file; convert the model first")
        return names

    def model(self, sequence_length: int) -> ModelConfig:
        """Return our settings for the configuration. Raises SpecError: not supported."""
        return read_config_json(self.config, sequence_length)

    def default_model(self) -> ModelConfig:
        """Return :meth:`model` with ``DEFAULT_LENGTH`` tokens, fewer if its positions are."""
        positions = self.config.get("max_position_embeddings", self.config.get("n_positions"))
        return self.model(min(DEFAULT_LENGTH, positions) if type(positions) is int else DEFAULT_LENGTH)


def check_file_name(name: str) -> str:
    """Return the name of an allowed file. Raises ManifestError: pickle, code, or unknown."""
    is_weights = name.endswith(".safetensors") and name.replace("-", "").replace(".", "").isalnum()
    if is_weights or name in _OTHER_FILES or _TEXT_FILE.fullmatch(name):
        return name
    kinds = "safetensors weights, tokenizer and texts"
    raise ManifestError("unsupported_value", f"files.{name:.80}", f"is refused; a model has {kinds}, no pickle or code")


class Stored(NamedTuple):
    """Place of a tensor's values: type in the file, first byte and end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(read: Callable[[int, int], bytes], size: int, what: str) -> dict[str, Stored]:
    """Return the tensors of an untrusted safetensors file.

    Args:
        read: returns the bytes from an offset, of a length.
        size: bytes of the file.
        what: name of the file, for errors.

    Raises:
        StateError: malformed, a type that cannot be trained, or values that overlap or leave gaps.
    """
    if size < 8:
        raise StateError("malformed", what, "is shorter than a safetensors header")
    (length,) = struct.unpack("<Q", read(0, 8))
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise StateError("malformed", what, f"has a header of {length} bytes; it is not a safetensors file")
    text = read(8, length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError("malformed", what, f"has no JSON header ({error!s:.80})") from error
    if not isinstance(header, dict):
        raise StateError("malformed", what, "has a header that is not an object")
    header.pop("__metadata__", None)
    found = {name: _stored(name, entry, 8 + length, what) for name, entry in header.items()}
    place = 8 + length
    for name, tensor in sorted(found.items(), key=lambda one: one[1].start):
        if tensor.start != place or tensor.end - tensor.start != math.prod(tensor.shape) * _DTYPES[tensor.dtype]:
            raise StateError(
                "malformed", what, f"{name:.80} overlaps another tensor, leaves a gap, or has another size"
            )
        place = tensor.end
    if place != size:
        raise StateError("malformed", what, f"has {size} bytes, but its tensors end at {place}")
    return found


def _stored(name: str, entry: object, start: int, what: str) -> Stored:
    try:
        dtype, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]  # type: ignore[index]
        numbers = [*shape, first, end]
    except (KeyError, TypeError, ValueError) as error:
        raise StateError("malformed", what, f"{name:.80} has no type, shape and place") from error
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise StateError("wrong_tensors", what, f"{name:.80} is {dtype!r:.40}; expected one of {', '.join(_DTYPES)}")
    if len(shape) > MAX_DIMENSIONS:  # the product of many large numbers takes long
        raise StateError("malformed", what, f"{name:.80} has {len(shape)} dimensions, beyond {MAX_DIMENSIONS}")
    if any(type(number) is not int or not 0 <= number <= MAX_FILE_BYTES for number in numbers):
        detail = f"{name:.80} has a size or place that is not a whole number up to {MAX_FILE_BYTES}"
        raise StateError("malformed", what, detail)
    return Stored(dtype, tuple(shape), start + first, start + end)


def our_name(architecture: str, name: str) -> str | None:
    """Return the name in our tables of a base file's tensor; None for a constant."""
    if architecture == "gpt2":
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            return None
        return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"
    return None if name.endswith(".rotary_emb.inv_freq") else name


def check_tensors(model: ModelConfig, files: Mapping[str, Mapping[str, Stored]]) -> dict[str, tuple[str, Stored]]:
    """Return the file and place of each of the model's tensors, by our names.

    Args:
        files: :func:`read_header` of each file, by name.

    Raises:
        StateError: a tensor is missing, unexpected, given twice, or has another shape.
    """
    expected = {tensor.name: tensor.shape for tensor in model.tensors()}
    found: dict[str, tuple[str, Stored]] = {}
    for file, header in files.items():
        for name, stored in header.items():
            ours = our_name(model.architecture, name)
            if ours is None or (model.tie_word_embeddings and ours == "lm_head.weight"):
                continue
            if ours not in expected or ours in found:
                raise StateError("wrong_tensors", file, f"{name:.80} is not a tensor of this model, or is given twice")
            if stored.shape != expected[ours]:
                detail = f"{name:.80} has the shape {stored.shape}; config.json makes {expected[ours]}"
                raise StateError("wrong_tensors", file, detail)
            found[ours] = file, stored
    missing = sorted(expected.keys() - found.keys())
    if missing:
        more = f", and {len(missing) - 1} more" if missing[1:] else ""
        raise StateError("wrong_tensors", "model", f"{missing[0]} of the shape {expected[missing[0]]} is missing{more}")
    return found


def stored_tensors(
    model: ModelConfig, sizes: Mapping[str, int], read: Callable[[str, int, int], bytes]
) -> dict[str, tuple[str, Stored]]:
    """Return :func:`check_tensors` of untrusted files; reads their headers only.

    Args:
        sizes: bytes of each file, by name.
        read: returns the bytes of a file from an offset, of a length; at most ``MAX_HEADER_BYTES`` in all.

    Raises:
        StateError: see :func:`read_header` and :func:`check_tensors`; or the headers are too large.
    """
    headers, left = {}, MAX_HEADER_BYTES
    for name, size in sizes.items():

        def bounded(start: int, length: int, name: str = name) -> bytes:
            nonlocal left
            if length > left:
                raise StateError("too_large", name, f"exceeds the headers' limit of {MAX_HEADER_BYTES} bytes in all")
            left -= length
            return read(name, start, length)

        headers[name] = read_header(bounded, size, name)
    return check_tensors(model, headers)


def file_tensors(model: ModelConfig, files: Mapping[str, Path]) -> dict[str, tuple[Path, Stored]]:
    """Return the file and place of each tensor by name. Raises StateError: see the checks."""

    def read(name: str, start: int, length: int) -> bytes:
        with files[name].open("rb") as file:
            file.seek(start)
            return file.read(length)

    sizes = {name: path.stat().st_size for name, path in files.items()}
    return {name: (files[file], stored) for name, (file, stored) in stored_tensors(model, sizes, read).items()}


def values_of(file: Path, stored: Stored, name: str) -> NDArray[np.float32]:
    """Return a tensor's values as float32, exactly. Raises StateError: one is not finite."""
    with file.open("rb") as opened:
        opened.seek(stored.start)
        data = opened.read(stored.end - stored.start)
    if stored.dtype == "BF16":
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(data, "<f2" if stored.dtype == "F16" else "<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise StateError("not_finite", file.name, f"{name} has a value that is not finite")
    return values.reshape(stored.shape)


def load_files(model: ModelConfig, files: Mapping[str, Path]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield a model's tensors by name, one in memory. Raises StateError: see the checks."""
    for name, (path, stored) in sorted(file_tensors(model, files).items()):
        yield name, values_of(path, stored, name)


def write_folder(model: ModelConfig, parameters: Mapping[str, NDArray[np.float32]], folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``, which ``from_pretrained`` loads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_json(model), indent=2))
    write_arrays(folder / "model.safetensors", parameters)
