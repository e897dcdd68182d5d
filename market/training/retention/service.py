"""Deletion of data that only training, replays and disputes need (decision 21).

Receipts stay verifiable from chain and storage: record, models, manifests, payloads and evidence are kept. Deleted for
jobs that ended long ago are outer states, updates and replica states in storage, and leases and events in the database.
So are final models that verifiers evaluated and that became no checkpoint. Files of the checkpoint that an extension
starts from, and of the last one, are kept too.
A job is marked after all deletions, so that an interrupted purge is repeated.

A job that never had nodes is purged a day after its refund. Its inputs and its first checkpoint are released too:
they are pinned before the match, and a cancellation before it is free.

A state that was revealed for a replay is released when its unit cannot be disputed any more. A published state of a
checkpoint is released when a newer one has proven holders (:mod:`market.training.replication.pins`). States
of rejected units are evidence and stay.
"""

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.domain.network import NetworkParameters
from market.jobs.models import Job
from market.platform.db.session import Database
from market.platform.events.repository import delete_events
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError, StorageUnavailable
from market.training.aggregation.rollback import continued_checkpoint
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.service import StoredCheckpoint
from market.training.leases.verification_hooks import hooks
from market.training.replication import repository as replication_repository
from market.training.replication.release import unpin_unneeded
from market.training.retention import repository
from market.training.rounds.first_checkpoint import release_unmatched
from market.training.units import repository as units_repository
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest

UNMATCHED_KEPT = timedelta(days=1)
"""Retention of the data of jobs that never had nodes, like that of files that were never accepted."""

JOBS_PER_RUN = 10
"""Jobs per sweep."""

ROWS_PER_BATCH = 1_000
"""Rows per transaction."""


def purge_expired(database: Database, storage: Storage, kept: timedelta, now: datetime) -> int:
    """Purge the data of jobs that ended longer than ``kept`` ago; return the number of jobs."""
    with database.transaction() as session:
        found = repository.ended_before(session, now - kept, now - UNMATCHED_KEPT, JOBS_PER_RUN)
        due = [(job.id, job.matched_at is not None) for job in found]
    purged = 0
    for job_id, had_nodes in due:
        try:
            if had_nodes:
                _release_files(database, storage, job_id)
            elif not release_unmatched(database, storage, job_id):
                continue
        except StorageUnavailable:
            return purged  # the next sweep retries
        for delete in (repository.delete_leases, delete_events):
            deleted = ROWS_PER_BATCH
            while deleted == ROWS_PER_BATCH:
                with database.transaction() as session:
                    deleted = delete(session, job_id, ROWS_PER_BATCH)
        with database.transaction() as session:
            repository.mark_released(session, job_id, now)
        purged += 1
    return purged


def _release_files(database: Database, storage: Storage, job_id: str) -> None:
    with database.transaction() as session:
        checkpoints = checkpoints_repository.checkpoints(session, job_id)
        states, evaluated = repository.unneeded_states(session, job_id), repository.evaluated_models(session, job_id)
        kept = set(checkpoints[-1:])
        if checkpoints:  # an extension starts from one of these, whose files an earlier checkpoint may share
            job = session.get_one(Job, job_id)
            units = units_repository.units_of_round(session, job_id, checkpoints[-1].round)
            kept.add(continued_checkpoint(job, checkpoints, units))
            if "start_checkpoint" in job.spec["data_config"]:
                kept.add(checkpoints[0])  # an audit starts from its outer state
    of_kept = {cid for one in kept for cid in one.file_cids}
    for_training = {cid for one in checkpoints for cid in _for_training(storage, one.cid)} - of_kept
    manifests = evaluated - {one.cid for one in checkpoints}
    unused = {cid for one in manifests for cid in _files(storage, one)}
    unused -= {cid for one in checkpoints for cid in one.file_cids}
    unpin_unneeded(database, storage, job_id, (states | for_training | unused) - manifests)
    unpin_unneeded(database, storage, job_id, manifests)  # last, since an interrupted call reads them again
    with database.transaction() as session:
        repository.mark_files_released(session, job_id, for_training)


def _for_training(storage: Storage, manifest_cid: str) -> list[str]:
    """Return the files of a checkpoint that only training needs. Raises StorageUnavailable."""
    manifest = _manifest(storage, manifest_cid)
    return [] if manifest is None else [cid for cid in (manifest.outer_state, manifest.update) if cid is not None]


def _files(storage: Storage, manifest_cid: str) -> list[str]:
    """Return all files of a model, also its manifest. Raises StorageUnavailable."""
    manifest = _manifest(storage, manifest_cid)
    return [] if manifest is None else StoredCheckpoint(manifest_cid, manifest).files


def _manifest(storage: Storage, cid: str) -> CheckpointManifest | None:
    try:
        return CheckpointManifest.from_bytes(storage.get(cid, max_bytes=MAX_MANIFEST_BYTES))
    except StorageUnavailable:
        raise
    except StorageError:  # lost or corrupt: its file list is unknown
        return None


def needs_file(session: Session, cid: str) -> bool:
    """Return True if a file is a payload or a public replica state."""
    return replication_repository.is_used_by_other_units(session, cid, ())


def unpin_states(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> int:
    """Unpin replica states that have no use; return their number.

    Files are unpinned before the rows change, so that an interrupted call is repeated.
    """
    with database.transaction() as session:
        due = [
            (unit.id, unit.slot_state_cid or "")
            for unit in replication_repository.unneeded(session, now - network.disputes.longest)
        ]
        ids = [unit_id for unit_id, _ in due]
        kept = {
            cid
            for _, cid in due
            if replication_repository.is_used_by_other_units(session, cid, ids) or hooks().is_revealed(session, cid)
        }
    try:
        for _, cid in due:
            if cid not in kept:
                storage.unpin(cid)
    except StorageUnavailable:
        return 0  # the next sweep retries
    with database.transaction() as session:
        replication_repository.mark_unpublished(session, ids)
    return len(ids)
