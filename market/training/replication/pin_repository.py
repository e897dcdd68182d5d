"""Queries over attempts to pin checkpoints."""

from collections import Counter

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from market.domain.lifecycle import LeaseStatus
from market.training.leases.models import Lease
from market.training.leases.repository import OPEN_LEASE
from market.training.leases.schemas import LeaseKind


def pin_attempts(session: Session, job_id: str) -> dict[int, tuple[set[str], Counter[str]]]:
    """Return by checkpoint id: nodes with an open pin lease, and failed pin leases by node."""
    return pin_attempts_by(session, Lease.checkpoint_id, Lease.job_id == job_id)


def pin_attempts_by(
    session: Session, key: InstrumentedAttribute[int | None], which: ColumnElement[bool]
) -> dict[int, tuple[set[str], Counter[str]]]:
    """Return by ``key``: nodes with an open pin lease of ``which``, and failed pin leases by node."""
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
