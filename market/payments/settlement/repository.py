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
    """The batch with this number in the contract, locked."""
    return session.scalar(select(SettlementBatch).where(SettlementBatch.batch_id == batch_id).with_for_update())


def batch_of_units(session: Session, settlement_id: int | None) -> SettlementBatch | None:
    """A batch that stands, by the number that its units know."""
    if settlement_id is None:
        return None
    batch = session.get(SettlementBatch, settlement_id)
    return None if batch is None or batch.void_reason is not None else batch


def batch_by_root(session: Session, root: str) -> SettlementBatch | None:
    """The batch that stands and has this root, locked."""
    stands = SettlementBatch.root == root, SettlementBatch.void_reason.is_(None)
    return session.scalar(select(SettlementBatch).where(*stands).with_for_update())


def batch_by_intent(session: Session, key: str) -> SettlementBatch | None:
    """The batch that this intent posts, locked."""
    return session.scalar(select(SettlementBatch).where(SettlementBatch.intent_key == key).with_for_update())


def last_batch_at(session: Session) -> datetime | None:
    """When the newest batch that pays anybody was made."""
    return session.scalar(select(func.max(SettlementBatch.created_at)).where(SettlementBatch.root.is_not(None)))


def lines_of(session: Session, settlement_id: int) -> list[SettlementLine]:
    """The lines of a batch by job."""
    mine = select(SettlementLine).where(SettlementLine.settlement_id == settlement_id)
    return list(session.scalars(mine.order_by(SettlementLine.job_id)))


def pending_line(session: Session, job_id: str) -> SettlementLine | None:
    """The job's line that is on its way to the chain, locked."""
    pending = SettlementLine.job_id == job_id, SettlementLine.status == PENDING
    return session.scalar(select(SettlementLine).where(*pending).with_for_update())


def jobs_with_pending_lines(session: Session) -> set[str]:
    """Ids of the jobs that have a line on its way to the chain."""
    return set(session.scalars(select(SettlementLine.job_id).where(SettlementLine.status == PENDING)))


def failures(session: Session, job_ids: Sequence[str]) -> dict[str, tuple[int, datetime]]:
    """By job whose newest batches are void: how many in a row, and when the newest of them was voided."""
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
    """Number of void batches by reason."""
    void = select(SettlementBatch.void_reason, func.count()).where(SettlementBatch.void_reason.is_not(None))
    return {str(reason): count for reason, count in session.execute(void.group_by(SettlementBatch.void_reason))}


def not_claimable(session: Session, now: datetime) -> list[int]:
    """Final batches that stand and whose claims are not open yet, by the number that their units know."""
    stands = SettlementBatch.batch_id.is_not(None), SettlementBatch.void_reason.is_(None)
    return list(session.scalars(select(SettlementBatch.id).where(SettlementBatch.claimable_at > now, *stands)))


def uncollected(session: Session, claimable_by: datetime, limit: int) -> list[SettlementBatch]:
    """Batches whose fee can be collected and was not asked for, oldest first, locked."""
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


def forget_collection(session: Session, key: str) -> None:
    """Make the batches of this collection due again."""
    session.execute(update(SettlementBatch).where(SettlementBatch.fees_key == key).values(fees_key=None))


def collect_again(session: Session, batch_id: int) -> None:
    """Make the batch with this number in the contract due for collection again."""
    session.execute(update(SettlementBatch).where(SettlementBatch.batch_id == batch_id).values(fees_key=None))


def note_claim(session: Session, batch_id: int, provider: str, tx: str) -> None:
    """The provider took its pay."""
    batch = select(SettlementBatch.id).where(SettlementBatch.batch_id == batch_id).scalar_subquery()
    session.execute(
        update(SettlementClaim)
        .where(SettlementClaim.settlement_id == batch, SettlementClaim.provider == provider)
        .values(claim_tx=tx)
    )


def claims_of(
    session: Session, provider: str, *, claimed: bool, after_batch: int, limit: int
) -> list[tuple[SettlementBatch, SettlementClaim]]:
    """A provider's claims in final batches that stand, by batch."""
    taken = SettlementClaim.claim_tx.is_not(None) if claimed else SettlementClaim.claim_tx.is_(None)
    rows = session.execute(
        select(SettlementBatch, SettlementClaim)
        .join(SettlementClaim, SettlementClaim.settlement_id == SettlementBatch.id)
        .where(
            SettlementClaim.provider == provider,
            SettlementBatch.batch_id > after_batch,
            SettlementBatch.void_reason.is_(None),
            taken,
        )
        .order_by(SettlementBatch.batch_id)
        .limit(limit)
    )
    return [(batch, claim) for batch, claim in rows]


def contested(session: Session, unit_keys: Collection[str]) -> dict[str, bool]:
    """Which of these units are contested on chain; by key, whether the dispute is lost."""
    found = select(ContestedUnit.unit_key, ContestedUnit.lost).where(ContestedUnit.unit_key.in_(unit_keys))
    return dict(session.execute(found).tuples().all())


def lost_units(session: Session) -> list[str]:
    """Keys of all units that lost a dispute."""
    return list(session.scalars(select(ContestedUnit.unit_key).where(ContestedUnit.lost)))


def contest(session: Session, unit_key: str, *, lost: bool) -> None:
    """The unit's pay is withheld, or its dispute is lost; what is lost stays lost."""
    values = {"unit_key": unit_key, "lost": lost}
    statement = insert(ContestedUnit).values(values)
    if lost:
        statement = statement.on_conflict_do_update(index_elements=[ContestedUnit.unit_key], set_={"lost": True})
    else:
        statement = statement.on_conflict_do_nothing()
    session.execute(statement)


def clear(session: Session, unit_key: str) -> None:
    """The unit's pay is not withheld any more, unless its dispute is lost."""
    session.execute(delete(ContestedUnit).where(ContestedUnit.unit_key == unit_key, ContestedUnit.lost.is_(False)))
