"""Small base models: folders of files, their manifests, and both on storage."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.training import TINY
from training_gym.model.folder import ModelManifest, write_folder
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import ModelConfig
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.spec.manifests import StoredFile
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256, to_hex

Put = Callable[[bytes], str]
"""Stores a file and returns its CID."""


def write_base(folder: Path, model: ModelConfig = TINY, seed: int = 7) -> None:
    """Write the folder of a model with random parameters."""
    fresh = TrainingSpec(model, "unused", TrainingConfig(seed=seed))
    write_folder(model, initial_parameters(fresh), folder)


def manifest_of(folder: Path, put: Put = cid_of_file, **config: Any) -> ModelManifest:
    """Return a folder's manifest; ``put`` stores the weights, ``config`` changes keys."""
    files: Mapping[str, bytes] = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    return ModelManifest(
        json.loads((folder / "config.json").read_text()) | config,
        {name: StoredFile(put(content), len(content), to_hex(sha256(content))) for name, content in files.items()},
    )


def weights_changed(manifest: ModelManifest, **changes: Any) -> ModelManifest:
    """Return the manifest with changes to the entry of its only file."""
    [(name, file)] = manifest.files.items()
    return ModelManifest(manifest.config, {name: replace(file, **changes)})


def header_of(content: bytes) -> dict[str, Any]:
    """Return the header of a safetensors file."""
    (length,) = struct.unpack_from("<Q", content)
    found: dict[str, Any] = json.loads(content[8 : 8 + length])
    return found


def with_header(content: bytes, header: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with another header; blanks fill a shorter one."""
    (length,) = struct.unpack_from("<Q", content)
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]
