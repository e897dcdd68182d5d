"""First checkpoint of a job."""

from dataclasses import replace

from market.jobs import repository as jobs_repository
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.service import record_checkpoint, state_bytes, store_checkpoint, validation_loss
from market.training.uploads import repository as uploads_repository
from training_gym.data.dataset import DatasetManifest
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import initial_checkpoint, load_state

_WAITED_FOR_BYTES = 4 << 30
"""Bytes of a split that a worker waits for from other IPFS nodes. A larger split must be local."""


class UnusableDataset(Exception):
    """The job's dataset is missing or does not match its manifest."""


def build_initial_checkpoint(database: Database, storage: Storage, job_id: str) -> None:
    """Pin the dataset, then build and record round 0's checkpoint, once.

    Raises:
        UnusableDataset: the dataset is missing or does not match its manifest.
        StorageUnavailable: storage failed; retry.
    """
    with database.advisory_lock(f"checkpoint:{job_id}") as alone:
        if not alone:
            return
        with database.transaction() as session:
            job = jobs_repository.job(session, job_id)
            if job is None or checkpoints_repository.checkpoint(session, job_id, 0) is not None:
                return
        spec = TrainingSpec.from_dict(job.spec)
        try:
            _pin_inputs(database, storage, spec)
            parameters = load_state(spec, _initial_model(storage, spec))
            stored = store_checkpoint(
                storage, spec, job_id=job_id, round_=0, parent=None, parameters=parameters, slot_states={}
            )
            stored = replace(stored, validation_loss=validation_loss(storage, spec, parameters))
        except (GymError, BlobNotFound, BlobCorrupt, BlobTooLarge) as error:
            raise UnusableDataset(str(error)) from error
        with database.transaction() as session:
            record_checkpoint(session, stored)


def _initial_model(storage: Storage, spec: TrainingSpec) -> bytes:
    if spec.start_model is None:
        return initial_checkpoint(spec)
    return storage.get(spec.start_model, max_bytes=state_bytes(spec))


def _pin_inputs(database: Database, storage: Storage, spec: TrainingSpec) -> None:
    manifest = DatasetManifest.from_bytes(storage.get(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
    with database.transaction() as session:  # an expiring upload of the same file must not unpin it
        uploads_repository.detach_pins(session, [spec.dataset, manifest.train.cid, manifest.validation.cid])
    storage.pin(spec.dataset)
    for split in (manifest.train, manifest.validation):
        storage.pin(split.cid, size=min(split.size, _WAITED_FOR_BYTES))
