"""Which units a settlement can pay, and in which batch each of them is.

Every function works in the caller's unit of work. Rounds are paid in order: a unit waits until its round is closed and
all units of it and of the rounds before are decided or in dispute. One that its dispute acquits is paid after them.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import JobStatus, UnitEvent, UnitStatus
from market.jobs import repository as jobs_repository
from market.payments.payables import repository as payables_repository
from market.platform.db.base import utc_now
from market.training.units import repository as units_repository
from market.training.units.facts import UnitSummary, facts
from market.training.units.transitions import transition_unit


class AlreadySettled(Exception):
    """A unit that was to enter a batch is in one already, or is not verified any more."""


def jobs_to_settle(session: Session) -> list[str]:
    """Ids of the jobs that are to be ended by settlement, or that have verified units in no batch, the oldest first."""
    return payables_repository.jobs_to_settle(session)


def payable_units(session: Session, job_id: str) -> list[UnitSummary]:
    """The verified units of a job that are in no batch and whose turn has come, in (round, slot) order."""
    job = jobs_repository.job(session, job_id)
    if job is None:
        return []
    closed = job.current_round if job.status == JobStatus.RUNNING else job.rounds
    undecided = payables_repository.first_undecided_round(session, job_id)
    before = closed if undecided is None else min(closed, undecided)
    return [facts(job, unit) for unit in payables_repository.unpaid_units(session, job_id, before)]


def unpaid_count(session: Session) -> tuple[int, datetime | None]:
    """Number of verified units in no batch, and since when the oldest waits."""
    return payables_repository.unpaid_count(session)


def put_in_batch(session: Session, unit_ids: Sequence[int], batch: int) -> None:
    """Put verified units, all or none, into a settlement batch.

    Raises:
        AlreadySettled: one of them is in a batch already, or no longer verified.
    """
    entered = payables_repository.put_in_batch(session, unit_ids, batch)
    if entered != len(unit_ids):
        raise AlreadySettled(f"of {len(unit_ids)} units only {entered} could enter settlement batch {batch}")


def batch_of(session: Session, unit_id: int) -> int | None:
    """The settlement batch that a unit is in."""
    return payables_repository.batch_of(session, unit_id)


def units_in_batch(session: Session, batch: int) -> list[UnitSummary]:
    """The units of a settlement batch, in no order."""
    return [facts(job, unit) for job, unit in payables_repository.units_in_batch(session, batch)]


def leaves_in_batches(session: Session, leaves: Collection[str], batches: Collection[int]) -> set[str]:
    """Which units, by the leaves of their commitments, are in one of these settlement batches."""
    return payables_repository.leaves_in_batches(session, leaves, batches)


def take_from_batch(session: Session, batch: int, reason: str) -> int:
    """Free the units of a batch that is void, for ``reason`` (stable code); their number."""
    return payables_repository.take_from_batch(session, batch, reason)


def strike_unit(session: Session, unit_id: int, reason: str) -> None:
    """A verified unit in no batch lost its dispute on chain: it is not paid. Does nothing to any other."""
    locked = units_repository.lock_unit(session, unit_id)
    if locked is None:
        return
    _, unit = locked
    if unit.status == UnitStatus.VERIFIED and unit.settlement_id is None:
        transition_unit(session, unit, UnitEvent.STRIKE, at=utc_now(), reason=reason)
