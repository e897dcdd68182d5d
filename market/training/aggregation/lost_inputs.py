"""End of a job whose round cannot be closed, because files that it needs are lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError
from market.providers.outages import service as outages
from market.settings import Settings
from market.training.leases import evaluations
from market.training.rounds.service import INPUTS_UNUSABLE, STORAGE_PATIENCE, fail_job
from market.training.units import repository as units_repository
from training_gym.spec.errors import GymError

_log = structlog.get_logger(__name__)


@contextmanager
def fails_overdue_job(database: Database, settings: Settings, storage: Storage, job_id: str) -> Iterator[None]:
    """Fail the job on a lost or false file once its round is overdue; raise the error before.

    An outage of storage fails no job. Delivered units are verified and paid as usual.
    """
    try:
        yield
    except (StorageError, GymError, OSError) as error:
        if not storage.accepts_writes():
            raise
        with database.transaction() as session:
            job = jobs_repository.lock_job(session, job_id)
            if job is None or job.status != JobStatus.RUNNING or not _is_overdue(session, settings, job):
                raise
            _log.error("round_inputs_lost", job=job_id, round=job.current_round, error=str(error))
            fail_job(session, job, INPUTS_UNUSABLE)


def _is_overdue(session: Session, settings: Settings, job: Job) -> bool:
    """Return True if the round could be closed long ago, without the time of outages."""
    units = units_repository.units_of_round(session, job.id, job.current_round)
    known = [job.round_started_at or job.created_at, *(unit.uploaded_at for unit in units)]
    since, now = max(at for at in known if at is not None), utc_now()
    if (asked_at := evaluations.final_asked_at(session, job.id)) is not None:
        since = max(since, asked_at + timedelta(seconds=settings.replay_seconds))
    away = outages.outage_time(session, since, now, (outages.API, outages.SWEEP, outages.STORAGE))
    return now - away > since + STORAGE_PATIENCE
