"""Transitions with audit events, and job events: stored with the change, announced later."""

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from market.domain.lifecycle import Event, State, next_state
from market.platform.db.session import Database, UnitOfWork, enqueue_after_commit
from market.platform.events import repository
from market.platform.events.models import AuditEvent, JobEventRow
from market.platform.events.repository import AuditFilters

MARKET = "market"  # actor of transitions without an account
CHAIN = "chain"  # actor of final events whose sender the market does not know
OnAnnounced = Callable[[Session, Collection[int]], None]

_STEP_RETENTION = timedelta(days=1)
"""Retention of ``step`` events, which every heartbeat emits."""


class HasStatus(Protocol):
    """Row with a status and a separate reason."""

    status: Any
    reason: Any


def apply_event(
    session: Session,
    row: HasStatus,
    machine: dict[tuple[State, Event], State],
    event: Event,
    *,
    subject: tuple[str, str],
    reason: str | None = None,
    actor: str = MARKET,
    data: dict[str, object] | None = None,
) -> State:
    """Apply ``event`` to ``row`` and write the audit event. Only this function sets a status.

    Args:
        subject: (kind, id) in the audit log, such as ``("job", job.id)``.
        reason: stable code; None keeps the row's reason.

    Raises:
        IllegalTransition: if the table has no such transition.
    """
    state_type = type(next(iter(machine.values())))
    before = state_type(row.status)
    after = next_state(machine, before, event)
    row.status = after.value
    if reason is not None:
        row.reason = reason
    session.add(
        AuditEvent(
            subject_kind=subject[0],
            subject_id=subject[1],
            event=event.value,
            from_status=before.value,
            to_status=after.value,
            reason=reason,
            actor=actor,
            data=data or {},
        )
    )
    return after


def emit(session: Session, job_id: str, kind: str, data: dict[str, object]) -> None:
    """Put an event of a job into the outbox; subscribers see it after the commit."""
    session.add(new_event(session, job_id, kind, data))


def new_event(unit: UnitOfWork, job_id: str, kind: str, data: dict[str, object]) -> JobEventRow:
    """Return the row of an event, for a caller that inserts it together with its own."""
    enqueue_after_commit(unit, "events.announce")
    return JobEventRow(job_id=job_id, kind=kind, data=data)


def record(
    session: Session, subject: tuple[str, str], event: str, *, actor: str, data: dict[str, object] | None = None
) -> None:
    """Write an audit event of an act without a transition, such as the grant of a role."""
    kind, subject_id = subject
    session.add(AuditEvent(subject_kind=kind, subject_id=subject_id, event=event, actor=actor, data=data or {}))


def audit_entries(
    session: Session,
    *,
    actor: str | None = None,
    subject: str | None = None,
    kind: str | None = None,
    search: str | None = None,
    after: int | None = None,
    limit: int = 50,
) -> list[AuditEvent]:
    """Return audit entries, newest first.

    Args:
        actor: address, ``market`` or ``chain``.
        subject: id of the subject, such as a job.
        kind: kind of the subject, such as ``job``.
        search: text in event, reason or data, in any case.
        after: id of the last entry seen.
    """
    return repository.audit_entries(session, AuditFilters(actor, subject, kind, search), after, limit)


def channel(job_id: str) -> str:
    """Return the Redis channel of a job's subscribers."""
    return f"zoo:job:{job_id}"


def announce(database: Database, redis: Redis, on_announced: OnAnnounced) -> int:
    """Announce all unannounced events and return the number of their jobs.

    The mark in the database is authoritative. Without the message in Redis, subscribers poll every second.

    Args:
        on_announced: receives the events' ids in the announcing transaction.
    """
    with database.transaction() as session:
        announced = repository.announce_all(session)
        if announced:
            on_announced(session, announced.keys())
    jobs = set(announced.values())
    with suppress(RedisError):
        for job_id in jobs:
            redis.publish(channel(job_id), "")
    return len(jobs)


def delete_old_steps(session: Session, now: datetime) -> None:
    """Delete old ``step`` events; called by the sweep."""
    repository.delete_steps(session, now - _STEP_RETENTION)
