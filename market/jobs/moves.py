"""The moves of jobs, units and leases: status, audit event and what subscribers see, always together."""

from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import JOB, LEASE, UNIT, UNIT_DECIDED, JobEvent, LeaseEvent, UnitEvent
from market.events.service import MARKET, emit, move
from market.jobs.models import Job, Lease, Unit
from market.providers import service as providers


def move_job(session: Session, job: Job, event: JobEvent, *, reason: str | None = None, actor: str = MARKET) -> None:
    """Move a job whose row the caller has locked.

    Raises:
        IllegalTransition: if the job's status does not take the event.
    """
    move(session, job, JOB, event, subject=("job", job.id), reason=reason, actor=actor)
    emit(session, job.id, "status", {"status": job.status, "reason": job.reason})


def move_unit(session: Session, unit: Unit, event: UnitEvent, *, at: datetime, reason: str | None = None) -> None:
    """Move a unit whose row the caller has locked; ``at`` becomes its time of decision if it is decided by this."""
    status = move(session, unit, UNIT, event, subject=("unit", str(unit.id)), reason=reason)
    if status in UNIT_DECIDED:
        unit.decided_at = at
        providers.note_unit(session, unit.provider, event, served_bytes=unit.uploaded_bytes, at=at)
    seen = {"round": unit.round, "slot": unit.slot, "provider": unit.provider, "status": status, "reason": reason}
    emit(session, unit.job_id, "unit", seen)


def move_lease(
    session: Session, lease: Lease, event: LeaseEvent, *, at: datetime, reason: str | None = None, detail: str = ""
) -> None:
    """Move a lease whose row the caller has locked; everything but a pull ends it at ``at``."""
    data: dict[str, object] = {"detail": detail} if detail else {}
    move(session, lease, LEASE, event, subject=("lease", lease.id), reason=reason, actor=lease.holder, data=data)
    if event is not LeaseEvent.PULL:
        lease.ended_at = at
