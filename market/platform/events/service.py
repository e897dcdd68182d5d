"""What happened, written with the change itself: state moves with their audit trail, and job events."""

from enum import StrEnum
from typing import Any, Protocol, TypeVar

from sqlalchemy.orm import Session

from market.domain.lifecycle import next_state
from market.platform.db.session import UnitOfWork, enqueue_after_commit
from market.platform.events import repository
from market.platform.events.models import AuditEvent, JobEventRow

State = TypeVar("State", bound=StrEnum)


Event = TypeVar("Event", bound=StrEnum)


MARKET = "market"  # the actor of moves that no account asked for


class HasStatus(Protocol):
    """A row with a status and, apart from it, a reason."""

    status: Any
    reason: Any


def move(
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
    """Move ``row`` by ``event`` along its lifecycle table and write the audit event; the only way to set a status.

    Args:
        subject: (kind, id) under which the audit log files it, such as ``("job", job.id)``.
        reason: stable code; None keeps the row's reason.

    Raises:
        IllegalTransition: if the table has no such move.
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
    """Put an event of a job into the outbox; subscribers see it once the unit of work has committed."""
    session.add(new_event(session, job_id, kind, data))


def new_event(unit: UnitOfWork, job_id: str, kind: str, data: dict[str, object]) -> JobEventRow:
    """The row of an event, as :func:`emit` writes it, for a caller that inserts it together with its own."""
    enqueue_after_commit(unit, "events.announce")
    return JobEventRow(job_id=job_id, kind=kind, data=data)


def forget_job(session: Session, job_id: str, limit: int) -> int:
    """Delete so many of a job's events at most, which ended long ago; returns how many there were."""
    return repository.delete_events(session, job_id, limit)


def record(
    session: Session, subject: tuple[str, str], event: str, *, actor: str, data: dict[str, object] | None = None
) -> None:
    """Write an audit event of an act that moves no status, such as the grant of a role."""
    kind, subject_id = subject
    session.add(AuditEvent(subject_kind=kind, subject_id=subject_id, event=event, actor=actor, data=data or {}))
