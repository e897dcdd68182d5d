"""Memory of the workers that aggregate, compared with a round's estimate."""

from datetime import timedelta

import structlog
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.domain.nodes.regions import MAX_LEAF
from market.platform.db.session import database_now
from market.settings import Settings
from market.training.aggregation.models import WorkerMemory
from training_gym.aggregate.memory import aggregation_memory_bytes
from training_gym.runtime.memory import measured
from training_gym.spec.config import TrainingSpec

RETENTION = timedelta(hours=1)
"""A worker that has not swept for this long has left; each of several workers sweeps more often."""

_log = structlog.get_logger(__name__)


def estimate(settings: Settings, spec: TrainingSpec, payloads: int) -> int:
    """Return the peak bytes of one task of a round; a large round is a tree of tasks."""
    is_tree = payloads * spec.num_parameters() >= settings.tree_aggregation_min_values
    return aggregation_memory_bytes(spec, min(payloads, MAX_LEAF) if is_tree else payloads)


def report(session: Session, settings: Settings, worker: str) -> None:
    """Record the memory of the worker with this name, and delete those that left."""
    now, total = database_now(session), _limited(settings, measured().total)
    session.execute(delete(WorkerMemory).where(WorkerMemory.seen_at < now - RETENTION))
    row = insert(WorkerMemory).values(worker=worker, memory_bytes=total, seen_at=now)
    session.execute(row.on_conflict_do_update(index_elements=["worker"], set_={"memory_bytes": total, "seen_at": now}))


def smallest_worker(session: Session, settings: Settings) -> int:
    """Return the bytes of the smallest worker; before the first report those of this machine."""
    found = session.scalar(select(func.min(WorkerMemory.memory_bytes)))
    return _limited(settings, measured().total if found is None else found)


def has_memory(settings: Settings, spec: TrainingSpec, payloads: int, job_id: str) -> bool:
    """Return True if this worker's free memory covers the estimate; log an error otherwise.

    The next sweep tries again, perhaps on another worker.
    """
    needed, free = estimate(settings, spec, payloads), free_bytes(settings)
    if needed > free:
        _log.error("aggregation_memory_short", job=job_id, needed_bytes=needed, free_bytes=free)
    return needed <= free


def free_bytes(settings: Settings) -> int:
    """Return this worker's free memory."""
    return _limited(settings, measured().free)


def _limited(settings: Settings, found: int) -> int:
    limit = settings.worker_memory_gib
    return found if limit is None else min(found, round(limit * 1024**3))
