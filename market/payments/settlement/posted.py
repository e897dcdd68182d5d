"""The market's own record of a batch, for comparison with what the chain has."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from market.payments.settlement.models import SettlementBatch, SettlementClaim, SettlementLine


@dataclass(frozen=True, slots=True)
class OwnLine:
    """A job's line in a batch of the market: ``units`` of rounds up to before ``to_round``."""

    job_id: str
    units: int
    from_round: int
    to_round: int
    last: bool


@dataclass(frozen=True, slots=True)
class OwnBatch:
    """A batch that the market built.

    Attributes:
        pay_wei: sum of all claims.
        payees: largest claims (provider, wei), at most as many as asked.
        void_reason: stable code if the batch was vetoed or refused.
    """

    lines: tuple[OwnLine, ...]
    pay_wei: int
    payee_count: int
    payees: tuple[tuple[str, int], ...]
    void_reason: str | None


def is_own_batch(session: Session, root: str) -> bool:
    """Return True if the market built a batch with this root."""
    return session.scalar(select(SettlementBatch.id).where(SettlementBatch.root == root).limit(1)) is not None


def own_batch(session: Session, root: str, payees: int) -> OwnBatch | None:
    """Return the market's newest batch with this root, with its largest claims."""
    newest = select(SettlementBatch).where(SettlementBatch.root == root).order_by(SettlementBatch.id.desc())
    batch = session.scalar(newest.limit(1))
    if batch is None:
        return None
    claims = SettlementClaim.settlement_id == batch.id
    count, total = session.execute(
        select(func.count(), func.coalesce(func.sum(SettlementClaim.amount_wei), 0)).where(claims)
    ).one()
    largest = select(SettlementClaim.provider, SettlementClaim.amount_wei).where(claims)
    largest = largest.order_by(SettlementClaim.amount_wei.desc(), SettlementClaim.provider).limit(payees)
    mine = select(SettlementLine).where(SettlementLine.settlement_id == batch.id).order_by(SettlementLine.job_id)
    return OwnBatch(
        lines=tuple(
            OwnLine(line.job_id, line.units, line.from_round, line.to_round, line.last)
            for line in session.scalars(mine)
        ),
        pay_wei=int(total),
        payee_count=count,
        payees=tuple((provider, amount) for provider, amount in session.execute(largest)),
        void_reason=batch.void_reason,
    )
