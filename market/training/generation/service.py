"""Samples of a job's newest good model: the text that it generates after a prompt.

A request is a row. A worker generates one text after the other, each in a child process, so that the memory of one
model is in use at most. A row that a worker began and did not end fails: its model may have ended the worker.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.accounts.service import Principal
from market.jobs.access import visible_job
from market.jobs.models import Job
from market.platform.db.rows import from_row
from market.platform.db.session import Database, database_now, enqueue_after_commit
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError
from market.settings import Settings
from market.training.aggregation import memory
from market.training.aggregation.rollback import continued_checkpoint
from market.training.checkpoints import repository as checkpoints_repository
from market.training.checkpoints.base_models import base_files
from market.training.checkpoints.service import state_bytes
from market.training.generation import repository
from market.training.generation.errors import ModelTooLarge, NoModelYet, SampleNotFound, SamplesBusy
from market.training.generation.models import Generation
from market.training.units import repository as units_repository
from training_gym.data.dataset import DatasetManifest
from training_gym.generation.text_generation import (
    GeneratedText,
    GenerationFailed,
    GenerationTask,
    generation_memory_bytes,
    run_generation,
)
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError
from training_gym.spec.manifests import MAX_MANIFEST_BYTES

MAX_PROMPT, MAX_LENGTH, MAX_TEMPERATURE, MAX_SEED = 2_000, 500, 10.0, 2**31 - 1
"""Limits in characters and tokens; longer texts are for the payer's own machine."""

RETENTION = timedelta(hours=1)
_SECONDS = 60.0  # for the tokens of a text
_MAX_OPEN, _MAX_OPEN_OF_ACCOUNT = 32, 2
_MAX_OF_ACCOUNT = 60  # in the time of retention
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text to continue, and how; the caller has checked the limits."""

    prompt: str
    length: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """State of one request; ``before`` is the number of samples that wait before it."""

    id: int
    job_id: str
    round: int
    prompt: str
    length: int
    temperature: float
    seed: int
    started_at: datetime | None
    ended_at: datetime | None
    text: str | None
    tokens: int | None
    failure: str | None
    before: int


@dataclass(frozen=True, slots=True)
class _Due:
    id: int
    spec: dict[str, Any]
    model_cid: str
    prompt: Prompt


def may_sample(session: Session, principal: Principal, job_id: str) -> Job:
    """Return a copy of a job whose model the caller may sample: the payer and its organisation.

    Raises:
        JobNotFound: neither. Staff of the market may not.
    """
    return visible_job(session, replace(principal, roles=frozenset()), job_id)


def request(session: Session, settings: Settings, principal: Principal, job_id: str, prompt: Prompt) -> int:
    """Queue a sample of the model that an extension would continue; return its id.

    Raises:
        JobNotFound: the caller may not sample it.
        NoModelYet: the job has no checkpoint.
        ModelTooLarge: the smallest worker cannot load the model.
        SamplesBusy: too many samples wait, or the account made too many.
    """
    job = may_sample(session, principal, job_id)
    checkpoints = checkpoints_repository.checkpoints(session, job_id)
    if not checkpoints:
        raise NoModelYet(f"job {job_id} is {job.status} and has no checkpoint")
    units = units_repository.units_of_round(session, job_id, checkpoints[-1].round)
    chosen = continued_checkpoint(job, checkpoints, units)
    needed, most = generation_memory_bytes(TrainingSpec.from_dict(job.spec)), memory.smallest_worker(session, settings)
    if needed > most:
        raise ModelTooLarge(f"the model needs {needed} bytes of memory; the smallest worker has {most}")
    waiting, own = repository.open_counts(session, principal.address)
    if waiting >= _MAX_OPEN or own >= _MAX_OPEN_OF_ACCOUNT:
        raise SamplesBusy(f"{own} of your samples and {waiting} of all accounts wait")
    if repository.number_of(session, principal.address) >= _MAX_OF_ACCOUNT:
        raise SamplesBusy(f"you made {_MAX_OF_ACCOUNT} samples within an hour")
    row = Generation(
        job_id=job_id,
        account=principal.address,
        round=chosen.round,
        model_cid=chosen.model_cid,
        prompt=prompt.prompt,
        length=prompt.length,
        temperature=prompt.temperature,
        seed=prompt.seed,
    )
    session.add(row)
    session.flush()
    enqueue_after_commit(session, "jobs.generate")
    return row.id


def sample(session: Session, address: str, job_id: str, sample_id: int) -> Sample:
    """Return the state of a caller's own sample. Raises SampleNotFound."""
    row = session.get(Generation, sample_id)
    if row is None or row.account != address or row.job_id != job_id:
        raise SampleNotFound(f"you have no sample {sample_id} of job {job_id}")
    before = repository.number_before(session, row.id) if row.ended_at is None else 0
    return from_row(Sample, row, before=before)


def is_waiting(database: Database) -> bool:
    """Return True if :func:`generate_waiting` has work."""
    with database.transaction() as session:
        return repository.oldest_open(session) is not None


def delete_expired(session: Session) -> None:
    """Delete samples older than :data:`RETENTION`."""
    repository.delete_before(session, database_now(session) - RETENTION)


def generate_waiting(database: Database, settings: Settings, storage: Storage) -> None:
    """Generate the texts of all waiting samples, oldest first; one worker at a time."""
    with database.advisory_lock("generations") as alone:
        while alone and (due := _take(database)) is not None:
            found, failure = None, None
            try:
                found = _generate(storage, settings, due)
            except GenerationFailed as error:
                failure = error.code
            except (StorageError, OSError):
                failure = "files-unavailable"
            except GymError:
                failure = "model-unusable"
            with database.transaction() as session:
                _end(session, due.id, found, failure)


def _take(database: Database) -> _Due | None:
    """Mark the oldest waiting sample as started and return it; end those of a lost worker."""
    with database.transaction() as session:
        while (row := repository.oldest_open(session)) is not None:
            if row.started_at is None:
                row.started_at = database_now(session)
                spec = session.get_one(Job, row.job_id).spec
                return _Due(row.id, spec, row.model_cid, from_row(Prompt, row))
            _end(session, row.id, None, "worker-lost")
            session.flush()
    return None


def _end(session: Session, sample_id: int, found: GeneratedText | None, failure: str | None) -> None:
    row = session.get(Generation, sample_id)
    if row is None:  # expired
        return
    row.ended_at, row.failure = database_now(session), failure
    if found is not None:
        row.text, row.tokens = found.text.replace("\0", "\ufffd"), found.tokens
    if failure is not None:
        _log.warning("sample_failed", job=row.job_id, failure=failure)


def _generate(storage: Storage, settings: Settings, due: _Due) -> GeneratedText:
    spec = TrainingSpec.from_dict(due.spec)
    if generation_memory_bytes(spec) > memory.free_bytes(settings):
        raise GenerationFailed("memory-short")
    base = {} if spec.adapter is None else base_files(storage, settings, spec)
    dataset = DatasetManifest.from_bytes(storage.get(spec.dataset, max_bytes=MAX_MANIFEST_BYTES))
    with _files(
        storage,
        {
            "model": (due.model_cid, state_bytes(spec)),
            "tokenizer": None if dataset.tokenizer is None else (dataset.tokenizer.cid, dataset.tokenizer.size),
        },
    ) as files:
        task = GenerationTask(
            spec=due.spec,
            parameters=files["model"],
            base={name: str(path) for name, path in base.items()},
            tokenizer=files.get("tokenizer"),
            prompt=due.prompt.prompt,
            length=due.prompt.length,
            temperature=due.prompt.temperature,
            seed=due.prompt.seed,
            seconds=_SECONDS,
        )
        return run_generation(task)


@contextmanager
def _files(storage: Storage, wanted: dict[str, tuple[str, int] | None]) -> Iterator[dict[str, str]]:
    """Yield paths of copies of the files (CID, greatest size); they end with the context."""
    with tempfile.TemporaryDirectory(prefix="zoo-sample-") as folder:
        paths = {}
        for name, file in wanted.items():
            if file is None:
                continue
            cid, size = file
            path = Path(folder) / name
            with path.open("wb") as opened:
                opened.writelines(storage.open_stream(cid, max_bytes=size))
            paths[name] = str(path)
        yield paths
