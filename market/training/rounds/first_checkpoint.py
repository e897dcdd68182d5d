"""First checkpoint of a job, with the pins of its inputs, and their release."""

from contextlib import suppress
from dataclasses import replace

from market.domain.lifecycle import JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import BlobCorrupt, BlobNotFound, BlobTooLarge
from market.providers.outages import service as outages
from market.settings import Settings
from market.training.checkpoints import own_pins
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.base_models import base_files, frozen_base
from market.training.checkpoints.service import (
    load_outer,
    load_parameters,
    model_loss,
    record_checkpoint,
    state_bytes,
    store_checkpoint,
    validation_split,
)
from training_gym.aggregate.outer_step import outer_state_pieces
from training_gym.evaluate.extent import is_first_by_market
from training_gym.model.folder import load_files
from training_gym.model.layout import Arrays, initial_parameters
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError, SpecError
from training_gym.units.checkpoint import load_state

_BASE_UNUSABLE, _START_UNUSABLE, _DATASET_UNUSABLE = "base_unusable", "start_unusable", "dataset_unusable"
STARTING = (JobStatus.MATCHING, JobStatus.RUNNING)
"""States of a job that may lack its first checkpoint."""


def build_initial_checkpoint(database: Database, settings: Settings, storage: Storage, job_id: str) -> str | None:
    """Pin the inputs, then build and record round 0's checkpoint, once.

    Returns:
        The reason of the job's end if an input is missing or does not match its manifest.

    Raises:
        StorageError: storage failed; retry.
        OSError: the worker failed; retry.
    """
    with database.advisory_lock(f"checkpoint:{job_id}") as alone:
        if not alone:
            return None
        with database.transaction() as session:
            job = jobs_repository.job(session, job_id)
            is_known = checkpoints_repository.checkpoint(session, job_id, 0) is not None
            if job is None or is_known or job.status not in STARTING:
                return None
        spec, reason = TrainingSpec.from_dict(job.spec), _BASE_UNUSABLE
        try:
            own_pins.pin(storage, job_id, own_pins.base_files(storage, spec))
            frozen_base(storage, settings, spec)
            if spec.start_checkpoint is not None or spec.start_model is not None:
                reason = _START_UNUSABLE
            parameters, outer_state = _initial_state(storage, settings, spec)
            own_pins.pin(storage, job_id, own_pins.start_files(storage, spec))
            reason = _DATASET_UNUSABLE
            own_pins.pin(storage, job_id, own_pins.dataset_files(storage, spec))
            size = validation_split(storage, spec).order.size  # a malformed split ends the job before more is stored
            # Otherwise nodes evaluate it. A job that waits for nodes may never train.
            is_evaluated = job.matched_at is not None and is_first_by_market(spec, size)
            loss = model_loss(storage, settings, spec, parameters, 0) if is_evaluated else None
        except (GymError, BlobNotFound, BlobCorrupt, BlobTooLarge):
            return reason
        stored = store_checkpoint(
            storage,
            spec,
            job_id=job_id,
            round_=0,
            parent=None,
            parameters=parameters,
            slot_states={},
            outer_state=outer_state,
            pin=False,
        )
        # Storage may collect files before the pin. The inputs are not at fault: a later call stores them again.
        own_pins.pin(storage, job_id, own_pins.stored_files(storage, stored.files))
        if loss is not None:
            stored = replace(stored, loss=loss)
        with database.transaction() as session:
            job = jobs_repository.lock_job(session, job_id)
            if job is not None and job.status == JobStatus.RUNNING:
                job.round_started_at = utc_now()  # its nodes have waited for this
            record_checkpoint(session, stored)
            outages.record_storage_check(session, works=True)
    return None


def _initial_state(
    storage: Storage, settings: Settings, spec: TrainingSpec
) -> tuple[Arrays, list[bytes | memoryview] | None]:
    """Return the parameters and the outer state file, in pieces, of a start checkpoint.

    Without one: the parameters of the start model, those of the base model, or fresh ones, and no outer state.
    """
    if spec.start_checkpoint is not None:
        outer_state = load_outer(storage, spec, spec.start_checkpoint)
        return load_parameters(storage, spec, spec.start_checkpoint), outer_state_pieces(spec, outer_state)
    if spec.start_model is not None:
        return load_state(spec, storage.get(spec.start_model, max_bytes=state_bytes(spec))), None
    if spec.base is not None and spec.adapter is None:
        return dict(load_files(spec.model, base_files(storage, settings, spec))), None
    return initial_parameters(spec), None


def release_unmatched(database: Database, storage: Storage, job_id: str) -> bool:
    """Delete the first checkpoint of a job without nodes, and unpin all that it pinned.

    Returns:
        False while a worker still builds.

    Raises:
        StorageUnavailable: some files are still pinned; retry.
    """
    with database.advisory_lock(f"checkpoint:{job_id}") as alone:
        if not alone:
            return False
        with database.transaction() as session:
            document = session.get_one(Job, job_id).spec
            first = checkpoints_repository.checkpoint(session, job_id, 0)
            stored = [] if first is None else first.file_cids
        with suppress(SpecError):  # of an earlier release, whose pins are not the job's own
            own_pins.release(storage, job_id, TrainingSpec.from_dict(document), stored)
        with database.transaction() as session:
            if (first := checkpoints_repository.checkpoint(session, job_id, 0)) is not None:
                session.delete(first)
    return True
