"""End of a job whose round cannot be closed, because files that it needs are lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import structlog
from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.platform.events.service import MARKET, audit_entries, record
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError
from market.providers.outages import service as outages
from market.settings import Settings
from market.training.leases import evaluations
from market.training.rounds.service import INPUTS_UNUSABLE, STORAGE_PATIENCE, fail_job
from market.training.units import repository as units_repository
from training_gym.spec.errors import GymError

_log = structlog.get_logger(__name__)


_MISSING = "round_inputs_missing"
"""Audit event of a round's first failure."""


@contextmanager
def fails_overdue_job(database: Database, settings: Settings, storage: Storage, job_id: str) -> Iterator[None]:
    """Fail the job on a lost or false file once its round is overdue; raise the error before.

    A single error ends no job, however long the round has waited or the call has computed. Nor does an outage of
    storage, or an error of the worker itself (``OSError``), such as a full disk. Delivered units are verified and paid
    as usual.
    """
    began = utc_now()
    try:
        yield
    except (StorageError, GymError) as error:
        works = storage.accepts_writes()
        with database.transaction() as session:
            outages.record_storage_check(session, works, began)
        if not works or not _ends(database, settings, job_id, began, error):
            raise


def _ends(database: Database, settings: Settings, job_id: str, began: datetime, error: Exception) -> bool:
    """Fail an overdue job; return False if it goes on, with the round's first failure recorded."""
    with database.transaction() as session:
        job = jobs_repository.lock_job(session, job_id)
        if job is None or job.status != JobStatus.RUNNING:
            return False
        known = audit_entries(session, subject=job.id, kind="job", search=_MISSING)
        first = next((entry.created_at for entry in known if entry.data["round"] == job.current_round), None)
        if first is None:
            record(session, ("job", job.id), _MISSING, actor=MARKET, data={"round": job.current_round})
            return False
        if not _is_overdue(session, settings, job, first, began):
            return False
        _log.error("round_inputs_lost", job=job_id, round=job.current_round, error=str(error))
        fail_job(session, job, INPUTS_UNUSABLE)
        return True


def _is_overdue(session: Session, settings: Settings, job: Job, failed_at: datetime, now: datetime) -> bool:
    """Return True if the round first failed, and could be closed, long ago without outages."""
    units = units_repository.units_of_round(session, job.id, job.current_round)
    known = [failed_at, job.round_started_at, *(unit.uploaded_at for unit in units)]
    since = max(at for at in known if at is not None)
    if (asked_at := evaluations.final_asked_at(session, job.id)) is not None:
        since = max(since, asked_at + timedelta(seconds=settings.replay_seconds))
    return outages.time_at_work(session, since, now) > STORAGE_PATIENCE
