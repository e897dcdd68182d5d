"""Queries over units, and over the replica states that they start from."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from market.domain.lifecycle import UNIT_DECIDED, UnitStatus
from market.domain.network import HOUR_US
from market.jobs.models import Job, Slot
from market.platform.db.locks import locked
from market.training.units.models import Unit
from training_gym.evaluate.sums import LossSums
from zoo_protocol.verification.training_faults import DIVERGED

OPEN_UNIT = (UnitStatus.LEASED, UnitStatus.COMMITTED)
DELIVERED_UNIT = (UnitStatus.UPLOADED, UnitStatus.CHECKING, UnitStatus.DISPUTED, UnitStatus.VERIFIED)
EVALUATED_UNIT = tuple(status for status in DELIVERED_UNIT if status != UnitStatus.DISPUTED)
ROUND_CLOSED = "round_closed"
"""Reason of a unit whose node had not committed when its round ended."""
_START = "start_slot_state_cid", "start_slot_state_digest", "start_restored_payload_cid", "start_eager_payload_cid"
_RESTORABLE = Unit.to_restore & Unit.status.not_in((UnitStatus.REJECTED, UnitStatus.DISPUTED))


def nodes_of_job(session: Session, job_id: str) -> list[str]:
    """Return the nodes that hold a replica of the job, in slot order, then those that held one."""
    held = session.scalars(select(Slot.provider).where(Slot.job_id == job_id).order_by(Slot.slot))
    worked = session.scalars(select(Unit.provider).where(Unit.job_id == job_id).order_by(Unit.id.desc()))
    return list(dict.fromkeys(address for address in (*held, *worked) if address is not None))


def unit(session: Session, unit_id: int) -> tuple[Job, Unit]:
    """Return a unit with its job; units are not deleted."""
    query = select(Job, Unit).join(Unit, Unit.job_id == Job.id).where(Unit.id == unit_id)
    return session.execute(query).one()._tuple()


def lock_unit(session: Session, unit_id: int) -> tuple[Job, Unit]:
    """Lock and return a unit, after its job."""
    of_unit = select(Unit.job_id).where(Unit.id == unit_id).scalar_subquery()
    job = session.scalars(locked(select(Job).where(Job.id == of_unit))).one()
    return job, session.scalars(locked(select(Unit).where(Unit.id == unit_id))).one()


def units_of_job(session: Session, job_id: str) -> list[Unit]:
    return list(session.scalars(select(Unit).where(Unit.job_id == job_id).order_by(Unit.round, Unit.slot, Unit.id)))


def units_of_round(session: Session, job_id: str, round_: int) -> list[Unit]:
    """Return all units of a round in slot order, lost ones too. To change them, lock the job."""
    query = select(Unit).where(Unit.job_id == job_id, Unit.round == round_).order_by(Unit.slot, Unit.id)
    return list(session.scalars(query.execution_options(populate_existing=True)))


def evaluations(
    session: Session, job_id: str, checkpoints: Collection[str] | None = None
) -> dict[str, dict[int, LossSums]]:
    """Return the records of undisputed units by checkpoint and slot; None: of all checkpoints."""
    query = select(Unit.start_checkpoint_cid, Unit.slot, Unit.evaluation).where(
        Unit.job_id == job_id, Unit.evaluation.is_not(None), Unit.status.in_(EVALUATED_UNIT)
    )
    if checkpoints is not None:
        query = query.where(Unit.start_checkpoint_cid.in_(checkpoints))
    found: dict[str, dict[int, LossSums]] = {}
    for checkpoint, slot, record in session.execute(query.order_by(Unit.round, Unit.id)):
        if record:  # overlapped rounds may evaluate one checkpoint twice, on the same samples
            found.setdefault(checkpoint, {}).setdefault(slot, LossSums.from_bytes(record.encode()))
    return found


def included_units(session: Session, job_id: str, round_: int) -> list[Unit]:
    """Return the units in a round's aggregation, late ones too. To change them, lock the job."""
    aggregated = Unit.round + func.coalesce(Unit.rounds_late, 0)
    query = select(Unit).where(Unit.job_id == job_id, Unit.included.is_(True), aggregated == round_)
    return list(session.scalars(query.order_by(Unit.id).execution_options(populate_existing=True)))


def last_report(session: Session, job_id: str, provider: str) -> dict[str, Any] | None:
    """Return the node's report of the last unit of this job that it delivered."""
    query = select(Unit.report).where(Unit.job_id == job_id, Unit.provider == provider, Unit.uploaded_at.is_not(None))
    return session.scalar(query.order_by(Unit.round.desc(), Unit.id.desc()).limit(1))


def newest_report(session: Session, provider: str, since: datetime) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the node's newest report after ``since`` of any job, and that job's specification."""
    query = select(Unit.report, Job.spec).join(Job, Job.id == Unit.job_id)
    query = query.where(Unit.provider == provider, Unit.uploaded_at > since, Unit.report.is_not(None))
    found = session.execute(query.order_by(Unit.uploaded_at.desc(), Unit.id.desc()).limit(1)).first()
    return None if found is None else (found.report, found.spec)


def exclude_payloads(session: Session, job_id: str, unit_ids: Collection[int], reason: str) -> None:
    """Exclude payloads from a round that is not aggregated. The caller has locked the job."""
    undecided = (Unit.job_id == job_id, Unit.id.in_(unit_ids), Unit.included.is_(None))
    session.execute(update(Unit).where(*undecided).values(included=False, exclusion_reason=reason))


def exclude_begun(session: Session, job_id: str, reason: str) -> None:
    """Exclude the job's undecided payloads, also those of open units, and restore none.

    The caller has locked the job.
    """
    live = Unit.job_id == job_id, Unit.status.not_in((UnitStatus.LOST, UnitStatus.REJECTED))
    session.execute(update(Unit).where(*live, Unit.included.is_(None)).values(included=False, exclusion_reason=reason))
    session.execute(update(Unit).where(*live, Unit.to_restore).values(to_restore=False))


def late_units(session: Session, job_id: str, round_: int) -> list[Unit]:
    """Return late units of rounds before ``round_`` that wait for an aggregation, by slot."""
    query = select(Unit).where(
        Unit.job_id == job_id, Unit.round < round_, Unit.status.in_(DELIVERED_UNIT), Unit.included.is_(None)
    )
    query = query.order_by(Unit.slot, Unit.id).execution_options(populate_existing=True)
    return list(session.scalars(query))


def units_and_late(session: Session, job_id: str, round_: int) -> dict[int, Unit]:
    """Return by id the units of the round and late units not aggregated yet."""
    units = [*units_of_round(session, job_id, round_), *late_units(session, job_id, round_)]
    return {unit.id: unit for unit in units}


def late_slots(session: Session, job_id: str, round_: int) -> set[int]:
    """Return the slots whose unit of a round before ``round_`` is committed and not uploaded."""
    query = select(Unit.slot).where(Unit.job_id == job_id, Unit.round < round_, Unit.status == UnitStatus.COMMITTED)
    return set(session.scalars(query))


def committed_slots(session: Session, job_id: str) -> set[int]:
    """Return the slots with a unit of any round that is committed and not uploaded."""
    return set(session.scalars(select(Unit.slot).where(Unit.job_id == job_id, Unit.status == UnitStatus.COMMITTED)))


def has_pending_upload(session: Session, unit: Unit) -> bool:
    """Return True if an earlier unit of the same slot is committed and not uploaded."""
    query = select(Unit.id).where(Unit.job_id == unit.job_id, Unit.slot == unit.slot, Unit.round < unit.round)
    return session.scalar(query.where(Unit.status == UnitStatus.COMMITTED).limit(1)) is not None


def has_lost_for(session: Session, job_id: str, provider: str, reason: str) -> bool:
    """Return whether the provider has lost a unit of the job for this reason."""
    query = select(Unit.id).where(Unit.job_id == job_id, Unit.provider == provider, Unit.reason == reason)
    return session.scalar(query.where(Unit.status == UnitStatus.LOST).limit(1)) is not None


def slow_nodes(session: Session, job_id: str, since: int, count: int) -> set[str]:
    """Return the nodes whose ``count`` newest units missed the ends of their rounds.

    Args:
        since: first round that counts.
    """
    recent = Unit.job_id == job_id, Unit.round >= since
    missed = select(Unit.provider).where(*recent, Unit.reason == ROUND_CLOSED)
    missed = missed.group_by(Unit.provider).having(func.count() >= count)
    query = select(Unit.provider, Unit.reason).where(*recent, Unit.provider.in_(missed))
    newest: dict[str, list[str | None]] = {}
    for provider, reason in session.execute(query.order_by(Unit.id.desc())):
        newest.setdefault(provider, []).append(reason)
    return {provider for provider, found in newest.items() if found[:count] == [ROUND_CLOSED] * count}


def refuted_claims(session: Session, unit: Unit, reasons: Collection[str]) -> list[str]:
    """Return the nodes that gave up the same unit for one of ``reasons``, before a commitment.

    Its round, replica and start are those of ``unit``. All nodes of a job are of one environment class. Compression
    decides only if a payload diverges.
    """
    names = "job_id", "round", "slot", "start_checkpoint_cid", *_START
    same = [getattr(Unit, name).is_not_distinct_from(getattr(unit, name)) for name in names]
    same.append(or_(Unit.reason != DIVERGED, Unit.top_k.is_not_distinct_from(unit.top_k)))
    lost = Unit.status == UnitStatus.LOST, Unit.reason.in_(reasons), Unit.committed_at.is_(None)
    return list(session.scalars(select(Unit.provider).where(*same, *lost).order_by(Unit.id)))


def probes(session: Session, job_id: str) -> dict[str, str]:
    """Return the probes of a job by node, those of earlier units first."""
    query = select(Unit.provider, Unit.probe).where(Unit.job_id == job_id, Unit.probe.is_not(None))
    return {provider: probe for provider, probe in session.execute(query.order_by(Unit.id)).tuples() if probe}


def units_started_from(session: Session, unit: Unit) -> list[Unit]:
    """Return open units that start from the state that ``unit`` declared."""
    from_it = or_(Unit.start_eager_payload_cid == unit.payload_cid, Unit.start_slot_state_cid == unit.slot_state_cid)
    query = select(Unit).where(Unit.job_id == unit.job_id, Unit.slot == unit.slot, Unit.round > unit.round, from_it)
    return list(session.scalars(query.where(Unit.status.in_(OPEN_UNIT)).order_by(Unit.id)))


def delivery_seconds(session: Session, job_id: str, since_round: int) -> list[float]:
    """Return delivered units' seconds from offer to upload, from round ``since_round`` on."""
    query = select(Unit.created_at, Unit.uploaded_at).where(
        Unit.job_id == job_id, Unit.round >= since_round, Unit.uploaded_at.is_not(None)
    )
    return [(uploaded - created).total_seconds() for created, uploaded in session.execute(query).tuples() if uploaded]


def undecided_units_of(session: Session, provider: str) -> int:
    """Return the number of a node's units without a decision."""
    query = select(func.count()).where(Unit.provider == provider, Unit.status.not_in(UNIT_DECIDED))
    return session.scalar(query) or 0


def undecided_wei(session: Session, provider: str) -> int:
    """Return the gross price of a node's units without a decision, before each is rounded."""
    value = func.coalesce(Job.clearing_price_wei, 0) * Job.unit_weight_us
    query = select(func.sum(value)).select_from(Unit).join(Job, Job.id == Unit.job_id)
    total = session.scalar(query.where(Unit.provider == provider, Unit.status.not_in(UNIT_DECIDED)))
    return int(total or 0) // HOUR_US


def has_undecided_units(session: Session, job_id: str) -> bool:
    query = select(Unit.id).where(Unit.job_id == job_id, Unit.status.not_in(UNIT_DECIDED)).limit(1)
    return session.scalar(query) is not None


def units_by_id(session: Session, unit_ids: Collection[int]) -> dict[int, Unit]:
    return {row.id: row for row in session.scalars(select(Unit).where(Unit.id.in_(unit_ids)))}


def _has_min_price(gross_wei: int) -> ColumnElement[bool]:
    """Match jobs whose units cost at least ``gross_wei``, before prices are rounded."""
    return func.coalesce(Job.clearing_price_wei, 0) * Job.unit_weight_us >= gross_wei * HOUR_US


def count_settled_units(session: Session, provider: str, min_wei: int, since: datetime | None) -> int:
    query = select(func.count()).select_from(Unit).join(Job, Job.id == Unit.job_id).where(_has_min_price(min_wei))
    query = query.where(Unit.provider == provider, Unit.settled_at.is_not(None))
    if since is not None:
        query = query.where(Unit.decided_at > since)
    return session.scalar(query) or 0


def newest_outlier_flags(
    session: Session, provider: str, min_wei: int, limit: int
) -> list[tuple[list[str] | None, str | None]]:
    """Return (flags, exclusion) of the provider's newest units worth at least ``min_wei``."""
    query = select(Unit.doubts, Unit.exclusion_reason).join(Job, Job.id == Unit.job_id).where(_has_min_price(min_wei))
    query = query.where(Unit.provider == provider, Unit.uploaded_at.is_not(None))
    return list(session.execute(query.order_by(Unit.uploaded_at.desc(), Unit.id.desc()).limit(limit)).tuples())


def unexamined_units(session: Session, job_id: str, round_: int) -> list[Unit]:
    """Return a round's units that were delivered in time and not examined, in slot order."""
    in_time = (Unit.round == round_, or_(Unit.rounds_late == 0, Unit.rounds_late.is_(None)))
    query = select(Unit).where(Unit.job_id == job_id, *in_time, Unit.status.in_(DELIVERED_UNIT), Unit.doubts.is_(None))
    return list(session.scalars(query.order_by(Unit.slot)))


def nodes_with_dataset(session: Session, dataset: str, providers: Collection[str]) -> set[str]:
    """Return nodes that delivered units on this dataset (manifest CID), so hold a copy."""
    query = select(Unit.provider).join(Job, Job.id == Unit.job_id).distinct()
    of_dataset = Job.spec["data_config"]["dataset"].as_string() == dataset
    return set(session.scalars(query.where(Unit.provider.in_(providers), Unit.status.in_(DELIVERED_UNIT), of_dataset)))


def unverified_units(session: Session, provider: str) -> list[int]:
    unverified = (UnitStatus.UPLOADED, UnitStatus.CHECKING)
    query = select(Unit.id).where(Unit.provider == provider, Unit.status.in_(unverified)).order_by(Unit.id)
    return list(session.scalars(query))


def unpaid_units(session: Session, provider: str) -> list[int]:
    """Return the node's verified units in no settlement batch, oldest first."""
    unpaid = (Unit.status == UnitStatus.VERIFIED, Unit.settlement_id.is_(None))
    return list(session.scalars(select(Unit.id).where(Unit.provider == provider, *unpaid).order_by(Unit.id)))


def is_state_public(session: Session, job_id: str, cid: str, digest: str) -> bool:
    """Return True if storage has the state; its digest must match, as CIDs can be foreign."""
    of_pair = Unit.job_id == job_id, Unit.slot_state_cid == cid, Unit.slot_state_digest == digest
    return session.scalar(select(Unit.id).where(*of_pair, Unit.slot_state_public).limit(1)) is not None


def make_state_public(session: Session, job_id: str, cid: str, digest: str | None) -> None:
    """Record that storage has the file with this CID, and that it holds the declared state."""
    of_pair = Unit.job_id == job_id, Unit.slot_state_cid == cid, Unit.slot_state_digest == digest
    session.execute(update(Unit).where(*of_pair).values(slot_state_public=True))


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
