"""Queries on the audit log and on the outbox of job events."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import String, cast, delete, exists, func, or_, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from market.platform.events.models import AuditEvent, JobEventRow

_ANNOUNCE_LOCK = 0x616E6E6F  # "anno"


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Conditions on audit entries; None: any. ``search`` is a text in event, reason or data."""

    actor: str | None = None
    subject: str | None = None
    kind: str | None = None
    search: str | None = None


def audit_entries(session: Session, filters: AuditFilters, after: int | None, limit: int) -> list[AuditEvent]:
    """Return audit entries below the id ``after`` that meet the filters, newest first."""
    query = select(AuditEvent)
    if after is not None:
        query = query.where(AuditEvent.id < after)
    if filters.actor is not None:
        query = query.where(func.lower(AuditEvent.actor) == filters.actor.lower())
    if filters.subject is not None:
        query = query.where(AuditEvent.subject_id == filters.subject)
    if filters.kind is not None:
        query = query.where(AuditEvent.subject_kind == filters.kind)
    if filters.search is not None:
        texts = (AuditEvent.event, AuditEvent.reason, cast(AuditEvent.data, String))
        query = query.where(or_(*(text.icontains(filters.search, autoescape=True) for text in texts)))
    return list(session.scalars(query.order_by(AuditEvent.id.desc()).limit(limit)))


def announce_all(session: Session) -> dict[int, str]:
    """Mark all unannounced events as announced now, and return their jobs by event id.

    A lock serialises announcements, so that their times order all events of a job.
    """
    session.execute(select(func.pg_advisory_xact_lock(_ANNOUNCE_LOCK)))
    now = session.scalars(select(func.clock_timestamp())).one()
    statement = (
        update(JobEventRow)
        .where(JobEventRow.announced_at.is_(None))
        .values(announced_at=now)
        .returning(JobEventRow.id, JobEventRow.job_id)
    )
    return dict(session.execute(statement).tuples().all())


def announced_after(session: Session, job_id: str, last_id: int, limit: int) -> list[JobEventRow]:
    """Return the job's announced events after the event ``last_id`` (0: all), in order."""
    statement = select(JobEventRow).where(JobEventRow.job_id == job_id, JobEventRow.announced_at.is_not(None))
    last = session.get(JobEventRow, last_id)
    if last is not None and last.job_id == job_id and last.announced_at is not None:
        position = tuple_(JobEventRow.announced_at, JobEventRow.id)
        statement = statement.where(position > tuple_(last.announced_at, last.id))
    statement = statement.order_by(JobEventRow.announced_at, JobEventRow.id).limit(limit)
    return list(session.scalars(statement))


def delete_steps(session: Session, before: datetime) -> None:
    """Delete ``step`` events from before ``before``, except the last event of a job."""
    newer = aliased(JobEventRow)
    own, later = (tuple_(row.announced_at, row.id) for row in (JobEventRow, newer))
    is_followed = exists().where(newer.job_id == JobEventRow.job_id, later > own)
    is_old = JobEventRow.kind == "step", JobEventRow.created_at < before, is_followed
    session.execute(delete(JobEventRow).where(*is_old))


def delete_events(session: Session, job_id: str, limit: int) -> int:
    """Delete up to ``limit`` of a job's events and return their number."""
    some = select(JobEventRow.id).where(JobEventRow.job_id == job_id).limit(limit)
    deleted = delete(JobEventRow).where(JobEventRow.id.in_(some)).returning(JobEventRow.id)
    return len(session.scalars(deleted).all())


def has_unannounced(session: Session, job_id: str) -> bool:
    """Return True if events of the job are not announced yet."""
    statement = select(exists().where(JobEventRow.job_id == job_id, JobEventRow.announced_at.is_(None)))
    return bool(session.scalar(statement))
