"""Validation losses of checkpoints, computed in parallel with later rounds.

No round waits for a loss, and settlement records the known ones. Only the losses of the first and the final model are
computed in place, because the receipt contains them.
"""

from market.jobs import repository as jobs_repository
from market.platform.db.session import Database
from market.platform.events.service import emit
from market.platform.storage.client import Storage
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.models import Checkpoint
from market.training.checkpoints.service import load_parameters, validation_loss
from market.training.evaluation.consistency import examine
from training_gym.spec.config import TrainingSpec


def jobs_to_validate(database: Database) -> list[str]:
    """Return the ids of jobs that :func:`validate` may have work for."""
    with database.transaction() as session:
        return list(checkpoints_repository.jobs_without_a_loss(session))


def validate(database: Database, storage: Storage, job_id: str) -> None:
    """Compute missing losses, newest first, then examine the last round; one worker at a time.

    Raises:
        StorageError: storage failed; the sweep retries.
    """
    with database.advisory_lock(f"validate:{job_id}") as alone:
        while alone and (due := _newest_unknown(database, job_id)) is not None:
            spec, checkpoint = due
            loss = validation_loss(storage, spec, load_parameters(storage, spec, checkpoint.cid))
            with database.transaction() as session:
                row = checkpoints_repository.checkpoint_by_id(session, checkpoint.id)
                assert row is not None  # checkpoints are never deleted
                row.validation_loss = loss
                emit(session, job_id, "validation", {"round": row.round, "cid": row.cid, "validation_loss": loss})
        if alone:
            examine(database, storage, job_id)


def _newest_unknown(database: Database, job_id: str) -> tuple[TrainingSpec, Checkpoint] | None:
    with database.transaction() as session:
        unknown = [row for row in checkpoints_repository.checkpoints(session, job_id) if row.validation_loss is None]
        job = jobs_repository.job(session, job_id)
        return None if job is None or not unknown else (TrainingSpec.from_dict(job.spec), unknown[-1])
