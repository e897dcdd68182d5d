"""Queries over checkpoints, over who keeps them, and over the leaves that a round is aggregated by."""

from collections import Counter
from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from market.domain.lifecycle import JobStatus, LeaseStatus
from market.jobs.lease_schemas import LeaseKind
from market.jobs.models import AggregationLeaf, Checkpoint, Job, Lease, Pin
from market.jobs.repository import OPEN_LEASE


def checkpoint(session: Session, job_id: str, round_: int) -> Checkpoint | None:
    return session.scalar(select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.round == round_))


def checkpoint_by_id(session: Session, checkpoint_id: int) -> Checkpoint | None:
    return session.get(Checkpoint, checkpoint_id)


def checkpoints(session: Session, job_id: str) -> list[Checkpoint]:
    return list(session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round)))


def pins_of_job(session: Session, job_id: str) -> dict[int, list[str]]:
    """Addresses of the proven holders by checkpoint id, ascending."""
    query = select(Pin).join(Checkpoint, Checkpoint.id == Pin.checkpoint_id).where(Checkpoint.job_id == job_id)
    holders: dict[int, list[str]] = {}
    for pin in session.scalars(query.order_by(Pin.checkpoint_id, Pin.provider)):
        holders.setdefault(pin.checkpoint_id, []).append(pin.provider)
    return holders


def pin_attempts(session: Session, job_id: str) -> dict[int, tuple[set[str], Counter[str]]]:
    """By checkpoint id: nodes with an open pin lease, and how often each node failed one."""
    return pin_attempts_by(session, Lease.checkpoint_id, Lease.job_id == job_id)


def pin_attempts_by(
    session: Session, key: InstrumentedAttribute[int | None], which: ColumnElement[bool]
) -> dict[int, tuple[set[str], Counter[str]]]:
    """By what they pin: nodes with an open one of ``which`` pin leases, and how often each node failed one."""
    query = select(key, Lease.holder, Lease.status).where(which, key.is_not(None), Lease.kind == LeaseKind.PIN)
    attempts: dict[int, tuple[set[str], Counter[str]]] = {}
    for pinned, holder, status in session.execute(query).tuples():
        assert pinned is not None  # so says the query
        running, failed = attempts.setdefault(pinned, (set(), Counter()))
        if status in OPEN_LEASE:
            running.add(holder)
        elif status != LeaseStatus.DONE:
            failed[holder] += 1
    return attempts


def jobs_without_a_loss(session: Session) -> Sequence[str]:
    """Ids of the unsettled jobs of whose checkpoints one has no validation loss yet, oldest first."""
    unknown = select(Checkpoint.job_id).where(Checkpoint.validation_loss.is_(None))
    query = select(Job.id).where(Job.id.in_(unknown), Job.status != JobStatus.SETTLED)
    return session.scalars(query.order_by(Job.created_at, Job.id)).all()


# --- the tree of an aggregation


def leaves_of_round(session: Session, job_id: str, round_: int) -> list[AggregationLeaf]:
    """The leaves in their order, read afresh; none if the round is aggregated in one place or not planned yet."""
    query = select(AggregationLeaf).where(AggregationLeaf.job_id == job_id, AggregationLeaf.round == round_)
    return list(session.scalars(query.order_by(AggregationLeaf.leaf).execution_options(populate_existing=True)))


def leaves_of_job(session: Session, job_id: str) -> list[AggregationLeaf]:
    return list(session.scalars(select(AggregationLeaf).where(AggregationLeaf.job_id == job_id)))


def drop_leaves(session: Session, job_id: str, rounds: Collection[int]) -> None:
    of_rounds = AggregationLeaf.job_id == job_id, AggregationLeaf.round.in_(rounds)
    session.execute(delete(AggregationLeaf).where(*of_rounds))
