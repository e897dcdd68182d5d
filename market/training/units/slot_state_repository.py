"""Queries over the replica states that units start from."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.training.units.models import Unit


def is_public(session: Session, job_id: str, cid: str, digest: str) -> bool:
    """Return True if storage has the state; its digest must match, as CIDs can be foreign."""
    of_pair = Unit.job_id == job_id, Unit.slot_state_cid == cid, Unit.slot_state_digest == digest
    return session.scalar(select(Unit.id).where(*of_pair, Unit.slot_state_public).limit(1)) is not None


def make_public(session: Session, job_id: str, cid: str, digest: str | None) -> None:
    """Record that storage has the file with this CID, and that it holds the declared state."""
    of_pair = Unit.job_id == job_id, Unit.slot_state_cid == cid, Unit.slot_state_digest == digest
    session.execute(update(Unit).where(*of_pair).values(slot_state_public=True))


_RESTORABLE = Unit.to_restore & Unit.status.not_in((UnitStatus.REJECTED, UnitStatus.DISPUTED))


def payload_to_restore(session: Session, job_id: str, slot: int) -> str | None:
    """Return the CID of the slot's oldest payload to restore, of undisputed units."""
    query = select(Unit.payload_cid).where(Unit.job_id == job_id, Unit.slot == slot, _RESTORABLE)
    return session.scalar(query.order_by(Unit.id).limit(1))


def slots_to_restore(session: Session, job_id: str) -> set[int]:
    """Return the slots whose next unit starts with a restored payload."""
    return set(session.scalars(select(Unit.slot).where(Unit.job_id == job_id, _RESTORABLE)))


def record_restored(session: Session, job_id: str, slot: int, payload_cid: str) -> None:
    """Record that the replica continues from a unit that started with this payload restored."""
    of_slot = Unit.job_id == job_id, Unit.slot == slot, Unit.payload_cid == payload_cid
    session.execute(update(Unit).where(*of_slot).values(to_restore=False))
