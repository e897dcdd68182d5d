"""Queries over batches, lines, claims and contested units."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby, takewhile

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from market.payments.settlement.models import ContestedUnit, SettlementBatch, SettlementClaim, SettlementLine

PENDING, SETTLED, VOID = "pending", "settled", "void"


def batch_by_id(session: Session, batch_id: int) -> SettlementBatch | None:
    """Lock the batch with this number in the contract."""
    return session.scalar(select(SettlementBatch).where(SettlementBatch.batch_id == batch_id).with_for_update())


def batch_of_units(session: Session, settlement_id: int | None) -> SettlementBatch | None:
    """Return the batch of that id unless it is void."""
    if settlement_id is None:
        return None
    batch = session.get(SettlementBatch, settlement_id)
    return None if batch is None or batch.void_reason is not None else batch


def batch_by_root(session: Session, root: str) -> SettlementBatch | None:
    """Lock the batch with this root that is not void."""
    valid = SettlementBatch.root == root, SettlementBatch.void_reason.is_(None)
    return session.scalar(select(SettlementBatch).where(*valid).with_for_update())


def batch_by_intent(session: Session, key: str) -> SettlementBatch | None:
    """Lock the batch that this intent posts."""
    return session.scalar(select(SettlementBatch).where(SettlementBatch.intent_key == key).with_for_update())


def last_batch_at(session: Session) -> datetime | None:
    """Return the time of the newest batch with paid units."""
    return session.scalar(select(func.max(SettlementBatch.created_at)).where(SettlementBatch.root.is_not(None)))


def lines_of(session: Session, settlement_id: int) -> list[SettlementLine]:
    mine = select(SettlementLine).where(SettlementLine.settlement_id == settlement_id)
    return list(session.scalars(mine.order_by(SettlementLine.job_id)))


def pending_line(session: Session, job_id: str) -> SettlementLine | None:
    """Lock the job's pending line."""
    pending = SettlementLine.job_id == job_id, SettlementLine.status == PENDING
    return session.scalar(select(SettlementLine).where(*pending).with_for_update())


def jobs_with_pending_lines(session: Session) -> set[str]:
    return set(session.scalars(select(SettlementLine.job_id).where(SettlementLine.status == PENDING)))


def failures(session: Session, job_ids: Sequence[str]) -> dict[str, tuple[int, datetime]]:
    """Return by job: consecutive void batches, and the time of the newest veto or refusal."""
    rows = session.execute(
        select(SettlementLine.job_id, SettlementBatch.voided_at)
        .join(SettlementBatch, SettlementBatch.id == SettlementLine.settlement_id)
        .where(SettlementLine.job_id.in_(job_ids))
        .order_by(SettlementLine.job_id, SettlementLine.settlement_id.desc())
    )
    found = {}
    for job_id, own in groupby(rows.tuples(), key=lambda row: row[0]):
        voided = [at for _, at in takewhile(lambda row: row[1] is not None, own) if at is not None]
        if voided:
            found[job_id] = (len(voided), voided[0])
    return found


def void_counts(session: Session) -> dict[str, int]:
    void = select(SettlementBatch.void_reason, func.count()).where(SettlementBatch.void_reason.is_not(None))
    return {str(reason): count for reason, count in session.execute(void.group_by(SettlementBatch.void_reason))}


def not_claimable(session: Session, now: datetime) -> list[int]:
    """Return ids of the final batches whose claims open after ``now``."""
    valid = SettlementBatch.batch_id.is_not(None), SettlementBatch.void_reason.is_(None)
    return list(session.scalars(select(SettlementBatch.id).where(SettlementBatch.claimable_at > now, *valid)))


def uncollected(session: Session, claimable_by: datetime, limit: int) -> list[SettlementBatch]:
    """Lock the oldest batches whose fee is collectable and not yet queued."""
    query = (
        select(SettlementBatch)
        .where(
            SettlementBatch.claimable_at <= claimable_by,
            SettlementBatch.fees_key.is_(None),
            SettlementBatch.void_reason.is_(None),
        )
        .order_by(SettlementBatch.batch_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return list(session.scalars(query))


def collect_again(session: Session, **which: str) -> None:
    """Make the batches with this ``fees_key`` or ``batch_id`` due for collection again."""
    session.execute(update(SettlementBatch).filter_by(**which).values(fees_key=None))


def record_claim(session: Session, batch_id: int, provider: str, tx: str) -> None:
    batch = select(SettlementBatch.id).where(SettlementBatch.batch_id == batch_id).scalar_subquery()
    session.execute(
        update(SettlementClaim)
        .where(SettlementClaim.settlement_id == batch, SettlementClaim.provider == provider)
        .values(claim_tx=tx)
    )


def contested(session: Session, unit_keys: Collection[str]) -> dict[str, bool]:
    """Return the contested ones of these units by key; true if the dispute is lost."""
    found = select(ContestedUnit.unit_key, ContestedUnit.lost).where(ContestedUnit.unit_key.in_(unit_keys))
    return dict(session.execute(found).tuples().all())


def lost_units(session: Session) -> list[str]:
    return list(session.scalars(select(ContestedUnit.unit_key).where(ContestedUnit.lost)))


def mark_contested(session: Session, unit_key: str, *, lost: bool) -> None:
    """Mark a unit as contested or as lost. A lost unit stays lost."""
    values = {"unit_key": unit_key, "lost": lost}
    statement = insert(ContestedUnit).values(values)
    if lost:
        statement = statement.on_conflict_do_update(index_elements=[ContestedUnit.unit_key], set_={"lost": True})
    else:
        statement = statement.on_conflict_do_nothing()
    session.execute(statement)


def clear_contested(session: Session, unit_key: str) -> None:
    """Remove the mark of a contested unit. A lost unit stays lost."""
    session.execute(delete(ContestedUnit).where(ContestedUnit.unit_key == unit_key, ContestedUnit.lost.is_(False)))
