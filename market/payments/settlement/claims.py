"""Providers' claims from settled batches, and the collection of the treasury's fees.

The market stores the proofs. Each provider sends its own claim transaction.
"""

from collections.abc import Callable
from uuid import uuid4

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import JobEscrow
from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.chain.service import queue_intent
from market.domain.lifecycle import IntentStatus
from market.payments.settlement import repository
from market.payments.settlement.models import SettlementBatch, SettlementClaim
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database

_log = structlog.get_logger(__name__)
_BATCHES_A_COLLECTION = 50


def claims_of(
    session: Session, provider: str, *, claimed: bool, after_batch: int, limit: int
) -> list[tuple[SettlementBatch, SettlementClaim]]:
    """Return a provider's claims in final batches that are not void, by batch."""
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


def claimable_at(session: Session, batch_id: int) -> int | None:
    """Return the Unix time at which a batch's claims open; None if unknown or void."""
    batch = repository.batch_by_id(session, batch_id)
    if batch is None or batch.claimable_at is None or batch.void_reason is not None:
        return None
    return int(batch.claimable_at.timestamp())


def collect_fees(database: Database, chain_time: Callable[[], int]) -> None:
    """Queue the collection of fees of batches whose challenge period is over.

    Args:
        chain_time: returns the Unix time of the latest block, which the contract compares. Called only if needed.
    """
    with database.transaction() as session:
        if not repository.uncollected(session, utc_now(), 1):
            return
    now = chain_time()
    with database.transaction() as session:
        due = repository.uncollected(session, from_unix(now), _BATCHES_A_COLLECTION)
        if not due:
            return
        ids = [batch.batch_id for batch in due]
        # A unique key: a batch can be due again, also within the same block timestamp.
        key = f"collect_fees:{ids[0]}:{ids[-1]}:{uuid4().hex}"
        for batch in due:
            batch.fees_key = key
        queue_intent(
            session,
            key=key,
            kind="collect_fees",
            subject=key,
            **JobEscrow.collectFees([batch.root for batch in due if batch.root is not None]),
        )


def on_fees_intent(session: Session, intent: TxIntent) -> None:
    """Make the batches of a reverted ``collect_fees`` intent due again."""
    if intent.status == IntentStatus.REVERTED:
        _log.error("fee_collection_refused", intent=intent.key, detail=intent.detail)
        repository.collect_again(session, fees_key=intent.subject)


def on_unit_restored(session: Session, event: ChainEvent) -> None:
    """Make a batch due again after a unit's fee returned to it."""
    repository.collect_again(session, batch_id=event.args["batchId"])


def on_batch_posted(session: Session, event: ChainEvent) -> None:
    """Store the contract's number and claim time of a final batch."""
    batch = repository.batch_by_root(session, event.args["root"])
    if batch is None:
        _log.error("foreign_settlement_batch", batch=event.args["batchId"], tx=event.tx_hash)
        return
    batch.batch_id = event.args["batchId"]
    batch.claimable_at = from_unix(event.args["claimableAt"])


def on_claimed(session: Session, event: ChainEvent) -> None:
    """Store a provider's claim."""
    repository.record_claim(session, event.args["batchId"], event.args["provider"], event.tx_hash)
