"""State transitions of leases."""

from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import LEASE, LeaseEvent
from market.platform.events.service import apply_event
from market.training.leases.models import Lease


def transition_lease(
    session: Session, lease: Lease, event: LeaseEvent, *, at: datetime, reason: str | None = None, detail: str = ""
) -> None:
    """Apply ``event`` to a locked lease. Every event except a pull ends it at ``at``."""
    data: dict[str, object] = {"detail": detail} if detail else {}
    apply_event(session, lease, LEASE, event, subject=("lease", lease.id), reason=reason, actor=lease.holder, data=data)
    if event is not LeaseEvent.PULL:
        lease.ended_at = at
