"""Queries over published replica states, pins and publish leases."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from market.domain.lifecycle import JobStatus, LeaseStatus, UnitStatus
from market.jobs.models import Job, Slot
from market.training.checkpoints.models import Checkpoint, Pin, StatePin
from market.training.leases.models import Lease
from market.training.leases.repository import OPEN_LEASE
from market.training.leases.schemas import LeaseKind
from market.training.units.models import Unit


def states_to_publish(session: Session, job_id: str, round_: int) -> Sequence[Unit]:
    """Return units whose states the checkpoint before ``round_`` names and storage lacks."""
    query = select(Unit).where(
        Unit.job_id == job_id,
        Unit.slot_state_round == round_,
        Unit.slot_state_public.is_(False),
        Unit.status != UnitStatus.REJECTED,
    )
    return session.scalars(query.order_by(Unit.slot)).all()


def publish_leases(session: Session, job_id: str, unit_ids: Collection[int]) -> Sequence[Lease]:
    """Return all publish leases of these units, and the open ones of the job."""
    query = select(Lease).where(Lease.job_id == job_id, Lease.kind == LeaseKind.PUBLISH)
    return session.scalars(query.where(or_(Lease.unit_id.in_(unit_ids), Lease.status.in_(OPEN_LEASE)))).all()


def newest_published(session: Session, job_id: str) -> Sequence[Unit]:
    """Return by slot the unit whose state is stored and named by the newest kept checkpoint."""
    query = select(Unit).where(
        Unit.job_id == job_id,
        Unit.slot_state_public,
        Unit.slot_state_round.is_not(None),
        Unit.status != UnitStatus.REJECTED,
    )
    query = query.distinct(Unit.slot).order_by(Unit.slot, Unit.slot_state_round.desc(), Unit.id.desc())
    return session.scalars(query).all()


def holders(session: Session, unit_ids: Collection[int]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    query = select(StatePin.unit_id, StatePin.provider).where(StatePin.unit_id.in_(unit_ids))
    for unit_id, provider in session.execute(query).tuples():
        found.setdefault(unit_id, set()).add(provider)
    return found


def state_pin_attempts(session: Session, unit_ids: Collection[int]) -> dict[int, tuple[set[str], Counter[str]]]:
    """Return by unit id: nodes with an open pin lease on its state, failed ones by node."""
    return _pin_attempts(session, Lease.unit_id, Lease.unit_id.in_(unit_ids))


def checkpoint_pin_attempts(session: Session, job_id: str) -> dict[int, tuple[set[str], Counter[str]]]:
    """Return by checkpoint id: nodes with an open pin lease, and failed pin leases by node."""
    return _pin_attempts(session, Lease.checkpoint_id, Lease.job_id == job_id)


def _pin_attempts(
    session: Session, key: InstrumentedAttribute[int | None], which: ColumnElement[bool]
) -> dict[int, tuple[set[str], Counter[str]]]:
    """Return by ``key``: nodes with an open pin lease of ``which``, and failed ones by node."""
    query = select(key, Lease.holder, Lease.status).where(which, key.is_not(None), Lease.kind == LeaseKind.PIN)
    attempts: dict[int, tuple[set[str], Counter[str]]] = {}
    for pinned, holder, status in session.execute(query).tuples():
        assert pinned is not None  # filtered by the query
        running, failed = attempts.setdefault(pinned, (set(), Counter()))
        if status in OPEN_LEASE:
            running.add(holder)
        elif status != LeaseStatus.DONE:
            failed[holder] += 1
    return attempts


def pins_to_release(session: Session, job_id: str, redundancy: int) -> dict[str, list[str]]:
    """Return by node the CIDs of a job's states that it may drop."""
    query = select(StatePin.provider, Unit.slot_state_cid).join(Unit, Unit.id == StatePin.unit_id)
    query = query.where(Unit.job_id == job_id, _superseded(literal(redundancy))).order_by(Unit.id)
    found: dict[str, list[str]] = {}
    for provider, cid in session.execute(query).tuples():
        found.setdefault(provider, []).append(cid or "")
    return found


def delete_pins(session: Session, provider: str, job_id: str, cids: Collection[str]) -> None:
    """Delete the node's pins of states that its lease released."""
    of_states = select(Unit.id).where(Unit.job_id == job_id, Unit.slot_state_cid.in_(cids))
    session.execute(delete(StatePin).where(StatePin.provider == provider, StatePin.unit_id.in_(of_states)))


def _superseded(redundancy: ColumnElement[int]) -> ColumnElement[bool]:
    """Match states with a newer proven state of the slot and a newer proven checkpoint."""
    newer = aliased(Unit)
    state_pins = select(func.count(StatePin.provider)).where(StatePin.unit_id == newer.id).correlate(newer)
    checkpoint_pins = select(func.count(Pin.provider)).where(Pin.checkpoint_id == Checkpoint.id).correlate(Checkpoint)
    is_newer_kept = exists().where(
        newer.job_id == Unit.job_id,
        newer.slot == Unit.slot,
        newer.slot_state_public,
        newer.slot_state_round > Unit.slot_state_round,
        state_pins.scalar_subquery() >= redundancy,
    )
    is_checkpoint_kept = exists().where(
        Checkpoint.job_id == Unit.job_id,
        Checkpoint.round > Unit.slot_state_round,
        checkpoint_pins.scalar_subquery() >= redundancy,
    )
    return is_newer_kept & is_checkpoint_kept


def unneeded(session: Session, decided_before: datetime) -> Sequence[Unit]:
    """Return up to 100 units whose replica states in storage may be dropped.

    No replica of a running job continues from such a state and no kept checkpoint names it. Every unit that started
    from it was decided before then, and none was rejected.
    """
    redundancy = select(Job.redundancy).where(Job.id == Unit.job_id).correlate(Unit).scalar_subquery()
    goes_on = exists().where(Slot.state_unit_id == Unit.id, Slot.job_id == Job.id, Job.status == JobStatus.RUNNING)
    after = aliased(Unit)
    is_contestable = exists().where(
        after.job_id == Unit.job_id,
        after.start_slot_state_cid == Unit.slot_state_cid,
        or_(after.decided_at.is_(None), after.decided_at > decided_before, after.status == UnitStatus.REJECTED),
    )
    is_kept = Unit.slot_state_round.is_not(None) & ~_superseded(redundancy)
    query = select(Unit).where(Unit.slot_state_public, ~goes_on, ~is_contestable, ~is_kept)
    return session.scalars(query.order_by(Unit.id).limit(100)).all()


def needed_elsewhere(session: Session, job_id: str, cids: Sequence[str]) -> set[str]:
    """Return the files that other jobs share, and payloads, which are kept.

    Jobs of one specification may produce equal files. The update of a single payload may equal it.
    """
    files = select(Checkpoint.file_cids).where(Checkpoint.job_id != job_id, Checkpoint.file_cids.has_any(array(cids)))
    found = {cid for of_checkpoint in session.scalars(files) for cid in of_checkpoint}
    found.update(cid for cid in session.scalars(select(Unit.payload_cid).where(Unit.payload_cid.in_(cids))) if cid)
    is_kept = or_(Job.released_at.is_(None), Unit.status == UnitStatus.REJECTED)
    for column in (Unit.slot_state_cid, Unit.start_slot_state_cid):
        units = select(column).join(Job, Job.id == Unit.job_id).where(Job.id != job_id, is_kept, column.in_(cids))
        found.update(cid for cid in session.scalars(units) if cid is not None)
    return found.intersection(cids)


def is_used_by_other_units(session: Session, cid: str, unit_ids: Collection[int]) -> bool:
    """Return True if a unit outside ``unit_ids`` has the file as public state or payload."""
    others = or_((Unit.slot_state_cid == cid) & Unit.slot_state_public, Unit.payload_cid == cid)
    return session.scalar(select(Unit.id).where(others, Unit.id.not_in(unit_ids)).limit(1)) is not None


def mark_unpublished(session: Session, unit_ids: Collection[int]) -> None:
    session.execute(update(Unit).where(Unit.id.in_(unit_ids)).values(slot_state_public=False))
