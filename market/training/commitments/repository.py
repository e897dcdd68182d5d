"""Queries over acknowledgements and over the units of commitment windows."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from market.jobs.models import Job
from market.training.commitments.models import Acknowledgement
from market.training.units.models import Unit
from market.training.units.repository import OPEN_UNIT
from zoo_protocol.messages import UnitCommitment

_WINDOWLESS = Unit.window_id.is_(None) & Unit.commitment_signature.is_not(None)


def lock_windowless_units(session: Session, limit: int) -> list[tuple[Job, Unit]]:
    """Lock and return committed units in no window, oldest first; skip locked ones.

    Lost and rejected units are included. Units that may still be uploaded are not: a provider that knew the seed could
    deliver only units without sampled segments.
    """
    query = (
        select(Job, Unit)
        .join(Unit, Unit.job_id == Job.id)
        .where(_WINDOWLESS, Unit.status.not_in(OPEN_UNIT))
        .order_by(Unit.committed_at, Unit.id)
        .limit(limit)
        .with_for_update(key_share=True, skip_locked=True, of=Unit)
        .execution_options(populate_existing=True)
    )
    return [row._tuple() for row in session.execute(query)]


def units_of_window(session: Session, window_id: int) -> list[tuple[Job, Unit]]:
    query = select(Job, Unit).join(Unit, Unit.job_id == Job.id).where(Unit.window_id == window_id)
    return [row._tuple() for row in session.execute(query.order_by(Unit.window_index))]


def commitments_of_window(session: Session, window_id: int) -> list[UnitCommitment]:
    columns = (Unit.job_id, Unit.round, Unit.slot, Unit.provider, Unit.trace_root, Unit.payload_hash)
    query = select(*columns).where(Unit.window_id == window_id).order_by(Unit.window_index)
    return [
        UnitCommitment(job_id, round_, slot, provider, trace_root or "", payload_hash or "")
        for job_id, round_, slot, provider, trace_root, payload_hash in session.execute(query).tuples()
    ]


def acknowledged_unit(session: Session, leaf: str) -> tuple[Acknowledgement, Job, Unit] | None:
    query = select(Acknowledgement, Job, Unit).join(Unit, Unit.id == Acknowledgement.unit_id)
    found = session.execute(query.join(Job, Job.id == Unit.job_id).where(Acknowledgement.leaf == leaf)).one_or_none()
    return None if found is None else found._tuple()


def count_outstanding(session: Session, open_windows: Collection[int], now: datetime) -> tuple[int, int]:
    """Return (all, overdue) acknowledged units in no window or one of ``open_windows``."""
    overdue = func.count().filter(Acknowledgement.include_by < now)
    query = select(func.count(), overdue).join(Unit, Unit.id == Acknowledgement.unit_id)
    row = session.execute(query.where(or_(_WINDOWLESS, Unit.window_id.in_(open_windows)))).one()
    return row[0], row[1]
