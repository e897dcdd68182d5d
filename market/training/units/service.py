"""Units for verification and settlement: reads, and the decisions that end a unit.

Every function works in the caller's transaction. A unit is decided when it is verified, rejected or lost. When the last
unit of a job that has stopped training is decided, the job goes to settlement.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import JobEvent, JobStatus, UnitEvent, UnitStatus
from market.domain.network import BPS
from market.jobs import repository as jobs_repository
from market.jobs.models import Job
from market.jobs.transitions import transition_job
from market.platform.db.base import utc_now
from market.platform.db.session import enqueue_after_commit
from market.training.checkpoints.service import PIN_GRACE, lacks_pins
from market.training.units import repository
from market.training.units.facts import UnitSummary, facts
from market.training.units.transitions import transition_unit
from zoo_protocol.verification.rules import COMPARABLE_SHARE

_TRAINING_OVER = (JobStatus.VERIFYING, JobStatus.CANCELLED, JobStatus.EXPIRED, JobStatus.FAILED, JobStatus.DISPUTED)


def unit_facts(session: Session, unit_id: int) -> UnitSummary:
    return facts(*repository.unit(session, unit_id))


def job_units(session: Session, job_id: str) -> list[UnitSummary]:
    """Return all units of a job in the order (round, slot, id), lost ones too."""
    job = jobs_repository.job(session, job_id)
    return [] if job is None else [facts(job, unit) for unit in repository.units_of_job(session, job_id)]


def clean_units_of(session: Session, unit: UnitSummary, since: datetime | None = None) -> int:
    """Return the number of the provider's settled units that are comparable to this one.

    See :data:`zoo_protocol.verification.rules.COMPARABLE_SHARE`. ``since`` limits it to later decisions.
    """
    return repository.count_settled_units(session, unit.provider, unit.gross_wei // COMPARABLE_SHARE, since)


def units_at(session: Session, job_id: str, round_: int, slot: int) -> list[UnitSummary]:
    """Return all units of a round's slot by id, lost ones too."""
    job = jobs_repository.job(session, job_id)
    found = [] if job is None else repository.units_of_round(session, job_id, round_)
    return [facts(job, unit) for unit in found if job is not None and unit.slot == slot]


def unverified_units_of(session: Session, provider: str) -> list[int]:
    return repository.unverified_units(session, provider)


def decided_before(session: Session, unit_ids: Collection[int], then: datetime) -> set[int]:
    units = repository.units_by_id(session, unit_ids).values()
    return {unit.id for unit in units if unit.decided_at is not None and unit.decided_at < then}


def mark_checking(session: Session, unit_id: int, sampling_bps: int) -> None:
    """Start checking a unit sampled at ``sampling_bps``. No-op if checked or decided."""
    _, unit = repository.lock_unit(session, unit_id)
    if unit.status == UnitStatus.UPLOADED:
        unit.sampling_bps = sampling_bps
        transition_unit(session, unit, UnitEvent.DRAW, at=utc_now())


def pass_unit(session: Session, unit_id: int, tolerated: Sequence[int] = ()) -> None:
    """Verify a unit; only a cross-class check passed ``tolerated``. No-op if decided."""
    job, unit = repository.lock_unit(session, unit_id)
    if unit.status == UnitStatus.CHECKING:
        unit.tolerated_segments = sorted(tolerated)
        transition_unit(session, unit, UnitEvent.PASS, at=utc_now())
        settle_if_decided(session, job, utc_now())


def reject_unit(session: Session, unit_id: int, reason: str) -> None:
    """Reject a unit for ``reason`` (stable code); it is not paid. No-op if it is decided."""
    job, unit = repository.lock_unit(session, unit_id)
    if unit.status in (UnitStatus.UPLOADED, UnitStatus.CHECKING, UnitStatus.DISPUTED):
        transition_unit(session, unit, UnitEvent.REJECT, at=utc_now(), reason=reason)
        if job.status == JobStatus.RUNNING and unit.round >= job.current_round:
            enqueue_after_commit(session, "jobs.dispatch", job.id)  # the round is open: another node can take over
        settle_if_decided(session, job, utc_now())


def dispute_unit(session: Session, unit_id: int, dispute_id: str) -> None:
    """Mark a unit as disputed on chain. Its payload is excluded if other payloads are delivered."""
    _, unit = repository.lock_unit(session, unit_id)
    unit.dispute_id = dispute_id
    transition_unit(session, unit, UnitEvent.DISPUTE, at=utc_now())


def return_to_checking(session: Session, unit_id: int) -> None:
    """Return a unit to checking after a dispute was rejected."""
    _, unit = repository.lock_unit(session, unit_id)
    transition_unit(session, unit, UnitEvent.ACQUIT, at=utc_now())


def reopen_unpaid_units(session: Session, provider: str) -> set[int]:
    """Sample all segments of the provider's verified units in no batch; return their windows.

    Units of settling jobs stay verified, because their job ends with this settlement.
    """
    windows = set()
    for unit_id in repository.unpaid_units(session, provider):
        job, unit = repository.lock_unit(session, unit_id)
        is_unpaid = unit.status == UnitStatus.VERIFIED and unit.settlement_id is None
        if is_unpaid and unit.window_id is not None and job.status != JobStatus.SETTLING:
            unit.sampling_bps = BPS
            transition_unit(session, unit, UnitEvent.REOPEN, at=utc_now())
            windows.add(unit.window_id)
    return windows


def settle_if_decided(session: Session, job: Job, now: datetime) -> None:
    """Settle a job that does not train any more once all units are decided. The job is locked."""
    if job.status not in _TRAINING_OVER or repository.has_undecided_units(session, job.id):
        return
    if job.status == JobStatus.VERIFYING:
        waited = job.trained_at is not None and now >= job.trained_at + PIN_GRACE
        if lacks_pins(session, job) and not waited:
            return
        transition_job(session, job, JobEvent.UNITS_DECIDED, reason="completed")
    enqueue_after_commit(session, "settlement.settle")
