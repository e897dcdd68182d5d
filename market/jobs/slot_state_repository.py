"""Queries over slot states, which are columns of the units that hand them on, and over the leases that ask for them."""

from collections.abc import Collection, Sequence

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitStatus
from market.jobs.lease_schemas import LeaseKind
from market.jobs.models import Lease, Unit
from market.jobs.repository import OPEN_LEASE


def is_public(session: Session, job_id: str, cid: str, digest: str) -> bool:
    """Whether storage has the state; a public file is not enough, since anybody can declare its CID with a digest."""
    of_pair = Unit.job_id == job_id, Unit.slot_state_cid == cid, Unit.slot_state_digest == digest
    return session.scalar(select(Unit.id).where(*of_pair, Unit.slot_state_public).limit(1)) is not None


def make_public(session: Session, job_id: str, cid: str, digest: str | None) -> None:
    of_pair = Unit.job_id == job_id, Unit.slot_state_cid == cid, Unit.slot_state_digest == digest
    session.execute(update(Unit).where(*of_pair).values(slot_state_public=True))


def wanted(session: Session, job_id: str, round_: int) -> Sequence[Unit]:
    """The units whose slot states the checkpoint before ``round_`` names and storage lacks, in slot order."""
    query = select(Unit).where(
        Unit.job_id == job_id,
        Unit.slot_state_round == round_,
        Unit.slot_state_public.is_(False),
        Unit.status != UnitStatus.REJECTED,
    )
    return session.scalars(query.order_by(Unit.slot)).all()


def publish_leases(session: Session, job_id: str, unit_ids: Collection[int]) -> Sequence[Lease]:
    """All that were ever made for these units, and those of the job that are open."""
    query = select(Lease).where(Lease.job_id == job_id, Lease.kind == LeaseKind.PUBLISH)
    return session.scalars(query.where(or_(Lease.unit_id.in_(unit_ids), Lease.status.in_(OPEN_LEASE)))).all()
