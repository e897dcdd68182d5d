"""A worker's copies of base models: files under their CIDs.

The files used longest ago are removed first. Workers of a machine share the folder without locks: a file appears whole,
and its name is its content.
"""

import hashlib
import os
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from market.platform.storage.client import Storage
from market.settings import Settings
from training_gym.model.base import check_base
from training_gym.model.folder import ModelManifest, file_tensors
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES, StoredFile
from zoo_protocol.hashing import to_hex

if TYPE_CHECKING:
    from training_gym.model.network import Base


def base_manifest(storage: Storage, base: str) -> ModelManifest:
    """Return a base model's manifest. Raises StorageError, ManifestError."""
    return ModelManifest.from_bytes(storage.get(base, max_bytes=MAX_MANIFEST_BYTES))


def base_files(storage: Storage, settings: Settings, spec: TrainingSpec) -> dict[str, Path]:
    """Return the weights of the job's base model as files by name; without a base none.

    Raises:
        StorageError: storage failed, or lacks a file.
        GymError: the files are not those of the manifest, or not the tensors of the job's model.
        OSError: the disk refuses.
    """
    if spec.base is None:
        return {}
    manifest = base_manifest(storage, spec.base)
    check_base(manifest, spec.model, settings.max_base_parameters)
    folder = settings.base_models_folder or Path(tempfile.gettempdir()) / f"zoo-base-models-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {name: folder / manifest.files[name].cid for name in manifest.weights()}
    missing = {name: path for name, path in files.items() if not _touched(path)}
    coming = sum(manifest.files[name].size for name in missing)
    _make_room(folder, files.values(), settings.base_models_gib << 30, coming)
    for name, path in missing.items():
        _download(storage, manifest.files[name], name, path)
    file_tensors(spec.model, files)
    return files


def frozen_base(storage: Storage, settings: Settings, spec: TrainingSpec) -> "Base | None":
    """Return the base model's tensors that units read, or None; raises as :func:`base_files`."""
    if not spec.reads_base:
        return None
    from training_gym.model.network import base_of  # imports torch, which only workers load

    return base_of(spec.model, base_files(storage, settings, spec), spec.training.precision)


def _touched(path: Path) -> bool:
    """Return whether the file is present, and mark it as used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _make_room(folder: Path, kept: Collection[Path], most: int, coming: int) -> None:
    """Remove the files used longest ago until ``coming`` bytes fit too; the ``kept`` ones stay."""
    found: dict[Path, os.stat_result] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # removed by another worker
            found[path] = path.stat()
    size = coming + sum(one.st_size for one in found.values())
    for path in sorted(found.keys() - set(kept), key=lambda path: found[path].st_mtime):
        if size <= most:
            return
        path.unlink(missing_ok=True)
        size -= found[path].st_size


def _download(storage: Storage, file: StoredFile, name: str, path: Path) -> None:
    digest, size = hashlib.sha256(), 0
    descriptor, partial = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            for piece in storage.open_stream(file.cid, max_bytes=file.size):
                opened.write(piece)
                digest.update(piece)
                size += len(piece)
        if size != file.size or to_hex(digest.digest()) != file.sha256:
            detail = f"has {size} bytes, or another digest than its manifest says; push the model again"
            raise ManifestError("wrong_hash", f"files.{name}", detail)
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
