"""State transitions of units."""

from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT, UNIT_DECIDED, UnitEvent
from market.domain.verification.sampling import JOBS_FAULT
from market.platform.events.service import apply_event, emit
from market.providers.record import reliability as providers
from market.training.units import repository
from market.training.units.models import Unit


def transition_unit(session: Session, unit: Unit, event: UnitEvent, *, at: datetime, reason: str | None = None) -> None:
    """Apply ``event`` to a locked unit; ``at`` becomes its decision time if this decides it."""
    status = apply_event(session, unit, UNIT, event, subject=("unit", str(unit.id)), reason=reason)
    if status in UNIT_DECIDED:
        is_repeated = event is UnitEvent.PASS and unit.decided_at is not None  # reopened before
        unit.decided_at = at
        if not is_repeated:
            providers.record_unit(session, unit.provider, event, served_bytes=unit.uploaded_bytes, at=at)
        if event is UnitEvent.PASS and not is_repeated:
            for claimant in repository.refuted_claims(session, unit, JOBS_FAULT):
                providers.record_lost_unit(session, claimant, at)
    seen = {"round": unit.round, "slot": unit.slot, "provider": unit.provider, "status": status, "reason": reason}
    emit(session, unit.job_id, "unit", seen)
