"""Files of base models: fetched by CID, compared with manifest and specification."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

from training_gym.model.base import check_base
from training_gym.model.folder import ModelManifest, file_tensors
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES, StoredFile
from zoo_compute.content.gateway import GatewayClient


def fetch_base(spec: TrainingSpec, gateway: GatewayClient, fetch: Callable[[StoredFile], Path]) -> dict[str, Path]:
    """Return the weights of the job's base model as files by name; without a base none.

    Names, types and shapes are compared here; values when they are read.

    Args:
        fetch: returns the file of a CID, of at most its size.

    Raises:
        GymError: the base model is not that of the specification.
        ContentError, BlockNotFound, GatewayUnavailable: a file cannot be fetched.
    """
    if spec.base is None:
        return {}
    manifest = ModelManifest.from_bytes(gateway.fetch(spec.base, max_bytes=MAX_MANIFEST_BYTES))
    check_base(manifest, spec.model)
    files = {}
    for name in manifest.weights():
        expected = manifest.files[name].size
        files[name] = fetch(manifest.files[name])
        if (size := files[name].stat().st_size) != expected:
            raise ManifestError("wrong_size", f"files.{name}", f"has {size} bytes; the manifest says {expected}")
    file_tensors(spec.model, files)
    return files


class BaseFiles:
    """Files of base models in a temporary folder, which the end of the context removes."""

    def __init__(self, gateway: GatewayClient) -> None:
        self._gateway, self._folder = gateway, tempfile.TemporaryDirectory(prefix="zoo-base-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def of(self, spec: TrainingSpec) -> dict[str, Path]:
        """Return what :func:`fetch_base` returns, each file fetched once; raises like it."""
        return fetch_base(spec, self._gateway, self._fetch)

    def _fetch(self, file: StoredFile) -> Path:
        path = Path(self._folder.name) / file.cid
        if not path.exists():
            self._gateway.download(file.cid, path, max_bytes=file.size)
        return path
