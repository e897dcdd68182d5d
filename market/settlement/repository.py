"""Queries over batches and claims."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from market.settlement.models import SettlementBatch, SettlementClaim


def batch_by_id(session: Session, batch_id: int) -> SettlementBatch | None:
    """The batch with this number in the contract, locked."""
    return session.scalar(select(SettlementBatch).where(SettlementBatch.batch_id == batch_id).with_for_update())


def batch_by_root(session: Session, root: str) -> SettlementBatch | None:
    """The batch with this root, locked."""
    return session.scalar(select(SettlementBatch).where(SettlementBatch.root == root).with_for_update())


def uncollected(session: Session, claimable_by: datetime, limit: int) -> list[SettlementBatch]:
    """Batches whose fee can be collected and was not asked for, oldest first, locked."""
    query = (
        select(SettlementBatch)
        .where(
            SettlementBatch.claimable_at <= claimable_by,
            SettlementBatch.fees_key.is_(None),
            SettlementBatch.vetoed.is_(False),
        )
        .order_by(SettlementBatch.batch_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return list(session.scalars(query))


def forget_collection(session: Session, key: str) -> None:
    """Make the batches of this collection due again."""
    session.execute(update(SettlementBatch).where(SettlementBatch.fees_key == key).values(fees_key=None))


def note_claim(session: Session, batch_id: int, provider: str, tx: str) -> None:
    """The provider took its pay."""
    job_id = select(SettlementBatch.job_id).where(SettlementBatch.batch_id == batch_id).scalar_subquery()
    session.execute(
        update(SettlementClaim)
        .where(SettlementClaim.job_id == job_id, SettlementClaim.provider == provider)
        .values(claim_tx=tx)
    )


def claims_of(
    session: Session, provider: str, *, claimed: bool, after_batch: int, limit: int
) -> list[tuple[SettlementBatch, SettlementClaim]]:
    """A provider's claims in final batches that stand, by batch."""
    taken = SettlementClaim.claim_tx.is_not(None) if claimed else SettlementClaim.claim_tx.is_(None)
    rows = session.execute(
        select(SettlementBatch, SettlementClaim)
        .join(SettlementClaim, SettlementClaim.job_id == SettlementBatch.job_id)
        .where(
            SettlementClaim.provider == provider,
            SettlementBatch.batch_id > after_batch,
            SettlementBatch.vetoed.is_(False),
            taken,
        )
        .order_by(SettlementBatch.batch_id)
        .limit(limit)
    )
    return [(batch, claim) for batch, claim in rows]
