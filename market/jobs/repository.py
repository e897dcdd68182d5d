"""Queries over jobs, slots and units.

Functions named ``lock_*`` take the row ``FOR NO KEY UPDATE`` and read it afresh. Locks are always taken in the order
job, unit, lease, so that no two transactions wait for each other.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, exists, func, or_, select, update
from sqlalchemy.orm import Session

from market.db.base import Hash32
from market.db.locks import locked
from market.db.prepared import Prepared
from market.domain.lifecycle import UNIT_DECIDED, JobStatus, LeaseStatus, UnitStatus
from market.domain.network import HOUR_US
from market.jobs.models import Checkpoint, Job, Lease, Pin, Slot, Unit

OPEN_LEASE = (LeaseStatus.OFFERED, LeaseStatus.ACTIVE)
OPEN_UNIT = (UnitStatus.LEASED, UnitStatus.COMMITTED)
DELIVERED_UNIT = (UnitStatus.UPLOADED, UnitStatus.CHECKING, UnitStatus.DISPUTED, UnitStatus.VERIFIED)

_PLACEMENT_LOCK = 0x706C6163  # "plac"


# --- jobs


def job(session: Session, job_id: str) -> Job | None:
    return session.get(Job, job_id)


_JOB_TO_READ = Prepared(select(*Job.__table__.columns).where(Job.id == bindparam("job_id", type_=Hash32)))
_JOB_COLUMNS = Job.__table__.columns.keys()


def job_to_read(session: Session, job_id: str) -> Job | None:
    """A copy of the job, which is no part of the session: what is changed in it is not written."""
    found = _JOB_TO_READ.rows(session, {"job_id": job_id})
    return Job(**dict(zip(_JOB_COLUMNS, found[0], strict=True))) if found else None


def lock_job(session: Session, job_id: str) -> Job | None:
    return session.scalar(locked(select(Job).where(Job.id == job_id)))


def _expires_at() -> ColumnElement[datetime]:
    return func.coalesce(Job.amended_wait_until, Job.wait_until)


def jobs_where(
    session: Session, where: Sequence[ColumnElement[bool]], limit: int, before: tuple[datetime, str] | None
) -> list[Job]:
    """Jobs, newest first; ``before`` is the (creation time, id) of the last one seen."""
    query = select(Job).where(*where)
    if before is not None:
        query = query.where((Job.created_at < before[0]) | ((Job.created_at == before[0]) & (Job.id < before[1])))
    return list(session.scalars(query.order_by(Job.created_at.desc(), Job.id.desc()).limit(limit)))


def ids_of(session: Session, payer: str) -> set[str]:
    return set(session.scalars(select(Job.id).where(Job.payer == payer)))


def payers(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    """The payer of each of these jobs."""
    return dict(session.execute(select(Job.id, Job.payer).where(Job.id.in_(job_ids))).tuples().all())


def count_by_status(session: Session) -> dict[str, int]:
    """How many jobs there are of each status."""
    return dict(session.execute(select(Job.status, func.count()).group_by(Job.status)).tuples().all())


def running_since_order(session: Session, waited_before: datetime) -> list[str]:
    """Running jobs whose order's end was before then."""
    query = select(Job.id).where(Job.status == JobStatus.RUNNING, Job.wait_until <= waited_before)
    return list(session.scalars(query.order_by(Job.id)))


def long_paused(session: Session, refund_after: timedelta, now: datetime) -> list[str]:
    """Running jobs that are paused, and whose order's end was longer ago than ``refund_after``."""
    query = select(Job.id).where(
        Job.status == JobStatus.RUNNING, Job.paused_at.is_not(None), Job.wait_until <= now - refund_after
    )
    return list(session.scalars(query.order_by(Job.id)))


def jobs_in_book(session: Session, tier_id: int, now: datetime) -> list[Job]:
    """Jobs that stand in the book of a tier, oldest first."""
    query = select(Job).where(
        Job.status == JobStatus.MATCHING, Job.tier_id == tier_id, _expires_at() > now, Job.paused_at.is_(None)
    )
    return list(session.scalars(query.order_by(Job.funded_at, Job.id)))


def asks(session: Session, tier_id: int, limit: int) -> list[tuple[dict[str, Any], int]]:
    """Requirements and number of nodes of the newest jobs that wait for nodes of a tier or hold some."""
    query = select(Job.requirements, Job.nodes).where(
        Job.status.in_((JobStatus.MATCHING, JobStatus.RUNNING)), Job.tier_id == tier_id
    )
    return [
        (found, nodes) for found, nodes in session.execute(query.order_by(Job.funded_at.desc(), Job.id).limit(limit))
    ]


def jobs_past_waiting(session: Session, now: datetime) -> list[str]:
    query = select(Job.id).where(Job.status == JobStatus.MATCHING, _expires_at() <= now)
    return list(session.scalars(query.order_by(Job.id)))


def active_jobs(session: Session) -> list[str]:
    """Ids of jobs that dispatch may have something to do for: of those that wait, only what has no checkpoint yet."""
    at_rest = (JobStatus.SUBMITTED, JobStatus.SETTLED, JobStatus.REJECTED)
    has_checkpoint = exists().where(Checkpoint.job_id == Job.id, Checkpoint.round == 0)
    is_ready = (Job.status == JobStatus.MATCHING) & has_checkpoint
    return list(session.scalars(select(Job.id).where(Job.status.not_in(at_rest), ~is_ready).order_by(Job.id)))


def jobs_in(session: Session, statuses: Collection[JobStatus]) -> list[str]:
    return list(session.scalars(select(Job.id).where(Job.status.in_(statuses)).order_by(Job.id)))


# --- slots


def lock_placement(session: Session) -> None:
    """Serialise placements until the end of the transaction, so that no node is placed twice at once."""
    session.execute(select(func.pg_advisory_xact_lock(_PLACEMENT_LOCK)))


def slots(session: Session, job_id: str) -> list[Slot]:
    return list(session.scalars(select(Slot).where(Slot.job_id == job_id).order_by(Slot.slot)))


def slot_holders(session: Session) -> set[str]:
    return set(session.scalars(select(Slot.provider).where(Slot.provider.is_not(None))))


def slots_by_holder(session: Session) -> dict[str, str]:
    """The job of each node that holds a slot."""
    query = select(Slot.provider, Slot.job_id).where(Slot.provider.is_not(None))
    return {provider: job_id for provider, job_id in session.execute(query).tuples() if provider is not None}


def is_at_work(session: Session, provider: str) -> bool:
    """Whether the node holds a slot, or trains or shows a state for a job that it has left."""
    holds = exists().where(Slot.provider == provider)
    works = exists().where(Lease.holder == provider, Lease.status.in_(OPEN_LEASE), Lease.kind.in_(("train", "reveal")))
    return session.scalar(select(or_(holds, works))) or False


def jobs_held_by(session: Session, provider: str) -> list[str]:
    """Ids of the jobs in which the node holds a slot or an open lease, in the order in which to lock them."""
    held = select(Slot.job_id).where(Slot.provider == provider)
    leased = select(Lease.job_id).where(Lease.holder == provider, Lease.status.in_(OPEN_LEASE))
    return sorted(set(session.scalars(held.union(leased))))


def nodes_of_job(session: Session, job_id: str) -> list[str]:
    """Addresses of the nodes that hold a slot of the job, in slot order, then of those that held one."""
    held = session.scalars(select(Slot.provider).where(Slot.job_id == job_id).order_by(Slot.slot))
    worked = session.scalars(select(Unit.provider).where(Unit.job_id == job_id).order_by(Unit.id.desc()))
    return list(dict.fromkeys(address for address in (*held, *worked) if address is not None))


# --- units


def unit(session: Session, unit_id: int) -> tuple[Job, Unit] | None:
    query = select(Job, Unit).join(Unit, Unit.job_id == Job.id).where(Unit.id == unit_id)
    found = session.execute(query).one_or_none()
    return None if found is None else found._tuple()


def lock_unit(session: Session, unit_id: int) -> tuple[Job, Unit] | None:
    """The unit and its job, both locked."""
    job_id = session.scalar(select(Unit.job_id).where(Unit.id == unit_id))
    job_row = None if job_id is None else lock_job(session, job_id)
    unit_row = session.scalar(locked(select(Unit).where(Unit.id == unit_id)))
    return None if job_row is None or unit_row is None else (job_row, unit_row)


def units_of_job(session: Session, job_id: str) -> list[Unit]:
    return list(session.scalars(select(Unit).where(Unit.job_id == job_id).order_by(Unit.round, Unit.slot, Unit.id)))


def units_of_round(session: Session, job_id: str, round_: int) -> list[Unit]:
    """All units of a round, lost ones too, in slot order; the caller has locked the job, so none moves meanwhile."""
    query = select(Unit).where(Unit.job_id == job_id, Unit.round == round_).order_by(Unit.slot, Unit.id)
    return list(session.scalars(query.execution_options(populate_existing=True)))


def last_report(session: Session, job_id: str, provider: str) -> dict[str, Any] | None:
    """What the node reported of the last unit of this job that it delivered."""
    query = select(Unit.report).where(Unit.job_id == job_id, Unit.provider == provider, Unit.uploaded_at.is_not(None))
    return session.scalar(query.order_by(Unit.round.desc(), Unit.id.desc()).limit(1))


def newest_report(session: Session, provider: str, since: datetime) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What the node reported last of a unit of any job, and that job's specification; None: nothing after ``since``."""
    query = select(Unit.report, Job.spec).join(Job, Job.id == Unit.job_id)
    query = query.where(Unit.provider == provider, Unit.uploaded_at > since, Unit.report.is_not(None))
    found = session.execute(query.order_by(Unit.uploaded_at.desc(), Unit.id.desc()).limit(1)).first()
    return None if found is None else (found.report, found.spec)


def leave_out(session: Session, job_id: str, unit_ids: Collection[int], reason: str) -> None:
    """Decide that payloads are in no aggregate, while their round is not joined; the caller has locked the job."""
    undecided = (Unit.job_id == job_id, Unit.id.in_(unit_ids), Unit.included.is_(None))
    session.execute(update(Unit).where(*undecided).values(included=False, exclusion_reason=reason))


def late_units(session: Session, job_id: str, round_: int) -> list[Unit]:
    """Units of rounds before ``round_`` that came too late for theirs and wait to be joined, in slot order."""
    query = select(Unit).where(
        Unit.job_id == job_id, Unit.round < round_, Unit.status.in_(DELIVERED_UNIT), Unit.included.is_(None)
    )
    query = query.order_by(Unit.slot, Unit.id).execution_options(populate_existing=True)
    return list(session.scalars(query))


def late_slots(session: Session, job_id: str, round_: int) -> set[int]:
    """Slots whose unit of a round before ``round_`` is committed and still to be uploaded."""
    query = select(Unit.slot).where(Unit.job_id == job_id, Unit.round < round_, Unit.status == UnitStatus.COMMITTED)
    return set(session.scalars(query))


def committed_slots(session: Session, job_id: str) -> set[int]:
    """Slots of which a unit, of whatever round, is committed and still to be uploaded."""
    return set(session.scalars(select(Unit.slot).where(Unit.job_id == job_id, Unit.status == UnitStatus.COMMITTED)))


def is_to_come(session: Session, unit: Unit) -> bool:
    """Whether an earlier unit of this one's slot is committed and still to be uploaded."""
    query = select(Unit.id).where(Unit.job_id == unit.job_id, Unit.slot == unit.slot, Unit.round < unit.round)
    return session.scalar(query.where(Unit.status == UnitStatus.COMMITTED).limit(1)) is not None


def started_from(session: Session, unit: Unit) -> list[Unit]:
    """Units under way that start from what ``unit`` declared."""
    from_it = or_(Unit.start_eager_payload_cid == unit.payload_cid, Unit.start_slot_state_cid == unit.slot_state_cid)
    query = select(Unit).where(Unit.job_id == unit.job_id, Unit.slot == unit.slot, Unit.round > unit.round, from_it)
    return list(session.scalars(query.where(Unit.status.in_(OPEN_UNIT)).order_by(Unit.id)))


def delivery_seconds(session: Session, job_id: str, since_round: int) -> list[float]:
    """What each delivered unit of the rounds from ``since_round`` on took, from its offer to its upload."""
    query = select(Unit.created_at, Unit.uploaded_at).where(
        Unit.job_id == job_id, Unit.round >= since_round, Unit.uploaded_at.is_not(None)
    )
    return [(uploaded - created).total_seconds() for created, uploaded in session.execute(query).tuples() if uploaded]


def has_undecided_units(session: Session, job_id: str) -> bool:
    query = select(Unit.id).where(Unit.job_id == job_id, Unit.status.not_in(UNIT_DECIDED)).limit(1)
    return session.scalar(query) is not None


def units_by_id(session: Session, unit_ids: Collection[int]) -> dict[int, Unit]:
    return {row.id: row for row in session.scalars(select(Unit).where(Unit.id.in_(unit_ids)))}


def _is_as_dear(gross_wei: int) -> ColumnElement[bool]:
    """Of a job: its units cost at least that much, before prices are rounded."""
    return func.coalesce(Job.clearing_price_wei, 0) * Job.unit_weight_us >= gross_wei * HOUR_US


def count_verified_units(session: Session, provider: str, least_wei: int, since: datetime | None) -> int:
    query = select(func.count()).select_from(Unit).join(Job, Job.id == Unit.job_id).where(_is_as_dear(least_wei))
    query = query.where(Unit.provider == provider, Unit.status == UnitStatus.VERIFIED)
    if since is not None:
        query = query.where(Unit.decided_at > since)
    return session.scalar(query) or 0


def newest_doubts(
    session: Session, provider: str, least_wei: int, limit: int
) -> list[tuple[list[str] | None, str | None]]:
    """Of the provider's newest delivered units that cost at least so much: what was unusual, why it was left out."""
    query = select(Unit.doubts, Unit.exclusion_reason).join(Job, Job.id == Unit.job_id).where(_is_as_dear(least_wei))
    query = query.where(Unit.provider == provider, Unit.uploaded_at.is_not(None))
    return list(session.execute(query.order_by(Unit.uploaded_at.desc(), Unit.id.desc()).limit(limit)).tuples())


def unexamined_units(session: Session, job_id: str, round_: int) -> list[Unit]:
    """Units of a round that were delivered in time and whose payloads were not compared yet, in slot order."""
    in_time = (Unit.round == round_, or_(Unit.rounds_late == 0, Unit.rounds_late.is_(None)))
    query = select(Unit).where(Unit.job_id == job_id, *in_time, Unit.status.in_(DELIVERED_UNIT), Unit.doubts.is_(None))
    return list(session.scalars(query.order_by(Unit.slot)))


def trained_on(session: Session, dataset: str, providers: Collection[str]) -> set[str]:
    """Those of the nodes that delivered a unit of a job on this dataset (CID of its manifest), so have fetched it."""
    query = select(Unit.provider).join(Job, Job.id == Unit.job_id).distinct()
    of_dataset = Job.spec["data_config"]["dataset"].as_string() == dataset
    return set(session.scalars(query.where(Unit.provider.in_(providers), Unit.status.in_(DELIVERED_UNIT), of_dataset)))


def holders_of_newest(session: Session, job_id: str) -> set[str]:
    """Nodes that proved a copy of the job's newest checkpoint."""
    newest = select(Checkpoint.id).where(Checkpoint.job_id == job_id).order_by(Checkpoint.round.desc()).limit(1)
    return set(session.scalars(select(Pin.provider).where(Pin.checkpoint_id == newest.scalar_subquery())))


def unverified_units(session: Session, provider: str) -> list[int]:
    unverified = (UnitStatus.UPLOADED, UnitStatus.CHECKING)
    query = select(Unit.id).where(Unit.provider == provider, Unit.status.in_(unverified)).order_by(Unit.id)
    return list(session.scalars(query))
