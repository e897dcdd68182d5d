"""The market's own record of batches, for comparison with what the chain has."""

from collections import defaultdict
from collections.abc import Collection, Mapping
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


def own_batches(session: Session, roots: Collection[str], payees: int) -> dict[str, OwnBatch]:
    """Return the market's newest batch of each root that it built, with the largest claims."""
    newest = select(func.max(SettlementBatch.id)).where(SettlementBatch.root.in_(roots)).group_by(SettlementBatch.root)
    batches = session.scalars(select(SettlementBatch).where(SettlementBatch.id.in_(newest))).all()
    ids = [batch.id for batch in batches]
    lines: defaultdict[int, list[OwnLine]] = defaultdict(list)
    mine = select(SettlementLine).where(SettlementLine.settlement_id.in_(ids)).order_by(SettlementLine.job_id)
    for line in session.scalars(mine):
        own = OwnLine(line.job_id, line.units, line.from_round, line.to_round, line.last)
        lines[line.settlement_id].append(own)
    totals = {
        settlement_id: (count, int(total))
        for settlement_id, count, total in session.execute(
            select(SettlementClaim.settlement_id, func.count(), func.sum(SettlementClaim.amount_wei))
            .where(SettlementClaim.settlement_id.in_(ids))
            .group_by(SettlementClaim.settlement_id)
        )
    }
    largest = _largest_claims(session, ids, payees)
    return {
        batch.root: OwnBatch(
            lines=tuple(lines[batch.id]),
            pay_wei=totals.get(batch.id, (0, 0))[1],
            payee_count=totals.get(batch.id, (0, 0))[0],
            payees=tuple(largest[batch.id]),
            void_reason=batch.void_reason,
        )
        for batch in batches
        if batch.root is not None
    }


def _largest_claims(session: Session, ids: Collection[int], limit: int) -> Mapping[int, list[tuple[str, int]]]:
    place = func.row_number().over(
        partition_by=SettlementClaim.settlement_id,
        order_by=(SettlementClaim.amount_wei.desc(), SettlementClaim.provider),
    )
    columns = (SettlementClaim.settlement_id, SettlementClaim.provider, SettlementClaim.amount_wei)
    ranked = select(*columns, place.label("place")).where(SettlementClaim.settlement_id.in_(ids)).subquery()
    first = select(ranked.c.settlement_id, ranked.c.provider, ranked.c.amount_wei).where(ranked.c.place <= limit)
    found: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for settlement_id, provider, amount in session.execute(first.order_by(ranked.c.settlement_id, ranked.c.place)):
        found[settlement_id].append((provider, amount))
    return found
