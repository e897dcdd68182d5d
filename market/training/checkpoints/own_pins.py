"""Pins that are a job's own: of its inputs and of its first checkpoint.

IPFS does not count the pins of a file. Each job therefore pins a node of its own above the file. Its release takes
nothing from other jobs, nor from an upload or an operator that pinned the file itself.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from market.platform.storage.client import Storage, StoredBlob
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge, StorageUnavailable
from market.training.checkpoints.base_models import base_manifest
from training_gym.data.dataset import DatasetManifest
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES

_WAITED_FOR_BYTES = 4 << 30
"""Bytes of a file that a worker waits for from other IPFS nodes. A larger one must be local."""


def pin(storage: Storage, job_id: str, files: Iterable[StoredBlob]) -> None:
    """Pin files for a job. Idempotent.

    Raises:
        StorageError: storage failed, or lacks a file (BlobNotFound).
    """
    for file in files:
        own = storage.put_owned(file, job_id)
        try:
            storage.pin(own, size=min(file.size, _WAITED_FOR_BYTES))
        except BlobNotFound:
            _require_node(storage, own)
            raise


def _require_node(storage: Storage, own: str) -> None:
    """Raise StorageUnavailable if storage collected a job's own node before its pin."""
    try:
        storage.stat(own)
    except BlobNotFound as error:
        raise StorageUnavailable(f"IPFS lost a node before its pin: {error}") from error


def release(storage: Storage, job_id: str, spec: TrainingSpec, stored: Sequence[str]) -> None:
    """Unpin a job's inputs and the files that it stored. Idempotent. Raises StorageUnavailable."""
    for files in (base_files, start_files, dataset_files):
        with suppress(GymError, BlobNotFound, BlobCorrupt, BlobTooLarge):  # then they were not pinned
            _unpin(storage, job_id, files(storage, spec))
    for cid in stored:
        with suppress(BlobNotFound, BlobCorrupt):  # unpinned by an interrupted call, or lost
            _unpin(storage, job_id, stored_files(storage, [cid]))


def _unpin(storage: Storage, job_id: str, files: Sequence[StoredBlob]) -> None:
    for file in reversed(files):  # the manifest last, since an interrupted call reads it again
        storage.unpin(file.owned_cid(job_id))


def base_files(storage: Storage, spec: TrainingSpec) -> list[StoredBlob]:
    """Return a base model's manifest and files, or none. Raises StorageError, GymError."""
    if spec.base is None:
        return []
    files = base_manifest(storage, spec.base).files.values()
    return [*stored_files(storage, [spec.base]), *(StoredBlob(file.cid, file.size) for file in files)]


def start_files(storage: Storage, spec: TrainingSpec) -> list[StoredBlob]:
    """Return a start checkpoint's manifest, which receipts name. The job stores its other files."""
    return [] if spec.start_checkpoint is None else stored_files(storage, [spec.start_checkpoint])


def dataset_files(storage: Storage, spec: TrainingSpec) -> list[StoredBlob]:
    """Return a dataset's manifest and shards. Raises StorageError, GymError."""
    manifest = DatasetManifest.from_bytes(storage.get(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
    shards = (*manifest.train, *manifest.validation)
    files = (StoredBlob(shard.cid, manifest.size_of(shard)) for shard in shards)
    return [*stored_files(storage, [spec.dataset]), *files]


def stored_files(storage: Storage, cids: Iterable[str]) -> list[StoredBlob]:
    """Return files with the sizes that storage states. Raises StorageError."""
    return [StoredBlob(cid, storage.stat(cid)) for cid in cids]
